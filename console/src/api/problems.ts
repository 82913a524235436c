/** What went wrong with a request, as a sentence for people. */

export type ProblemKind =
  | "away"
  | "unauthenticated"
  | "forbidden"
  | "not-found"
  | "conflict"
  | "stale-version"
  | "invalid"
  | "too-many-requests"
  | (string & {});

export interface FieldProblem {
  field: string;
  message: string;
}

/** A request that the server refused, or that never came to it (`kind` "away"). The message is a sentence. */
export class Problem extends Error {
  readonly kind: ProblemKind;
  readonly status: number;
  readonly requestId: string | null;
  readonly fields: readonly FieldProblem[];

  constructor(
    kind: ProblemKind,
    status: number,
    detail: string,
    requestId: string | null = null,
    fields: readonly FieldProblem[] = [],
  ) {
    super(detail);
    this.name = "Problem";
    this.kind = kind;
    this.status = status;
    this.requestId = requestId;
    this.fields = fields;
  }

  /** Whether the same request may go well in a moment. */
  get mayPass(): boolean {
    return this.kind === "away" || this.status >= 500 || this.status === 429;
  }
}

const PREFIX = "urn:legato:problem:";

/** Return the problem in an answer. A proxy in front of the server may answer without one. */
export async function readProblem(answer: Response): Promise<Problem> {
  const text = await answer.text().catch(() => "");
  const requestId = answer.headers.get("X-Request-Id");
  if ((answer.headers.get("Content-Type") ?? "").includes("json")) {
    try {
      const told = JSON.parse(text) as { type?: string; detail?: string; errors?: FieldProblem[] };
      if (typeof told.detail === "string") {
        const kind = told.type?.startsWith(PREFIX) ? told.type.slice(PREFIX.length) : "other";
        return new Problem(kind, answer.status, told.detail, requestId, told.errors ?? []);
      }
    } catch {
      // An answer that claims to be JSON and is not is handled like any other unexpected answer.
    }
  }
  if (answer.status === 502 || answer.status === 503 || answer.status === 504) return makeAway(answer.status);
  return new Problem(
    "other",
    answer.status,
    `The server answered with status ${answer.status} and gave no reason.`,
    requestId,
  );
}

/** Return the problem of a server that does not answer. */
export function makeAway(status = 0): Problem {
  return new Problem("away", status, "Can't reach the server. Reconnecting…");
}

/** Return the sentence for people in anything that was thrown. */
export function sayProblem(thrown: unknown): string {
  if (thrown instanceof Problem) {
    // The fields are said only where the sentence does not say them itself.
    const fields = thrown.fields.filter((found) => !thrown.message.includes(found.message));
    const told = fields.map((found) => `${found.field.replace(/^(body|query)\./, "")}: ${found.message}`);
    return [thrown.message, ...told].join(" ");
  }
  return thrown instanceof Error ? thrown.message : String(thrown);
}
