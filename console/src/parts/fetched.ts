/** Pages that are fetched when they are first opened, and what it means when one cannot be. */

const AGAIN_MS = 3000;

/** The server answers, but no longer has this page: its pages were replaced by those of another version. */
export class PagesReplaced extends Error {
  constructor() {
    super("The server was updated; reload this page.");
  }
}

/** Fetch a page. As long as the server is away it is asked again; one that answers without the page has other pages. */
export async function fetchPage<P>(fetches: () => Promise<P>, again_ms = AGAIN_MS): Promise<P> {
  let hasAnswered = false;
  for (;;) {
    try {
      return await fetches();
    } catch {
      // What failed while the server was away may go well now that it answers.
      if (hasAnswered) throw new PagesReplaced();
      hasAnswered = await doesAnswer();
      if (!hasAnswered) await new Promise((done) => window.setTimeout(done, again_ms));
    }
  }
}

async function doesAnswer(): Promise<boolean> {
  try {
    return (await fetch("./", { method: "HEAD", cache: "no-store" })).ok;
  } catch {
    return false;
  }
}
