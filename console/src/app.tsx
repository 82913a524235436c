/** The console: a logged-in user sees the page of the address; others see only the page to log in. */

import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { Suspense, useEffect, useState } from "react";
import { Problem } from "@/api/problems";
import { Shell } from "@/layout/shell";
import { LiveProvider } from "@/live/live";
import { LoginDialog, LoginPage } from "@/pages/login/login-page";
import { WelcomePage } from "@/pages/login/welcome-page";
import { Boundary } from "@/parts/boundary";
import { Empty, ErrorState, Loading } from "@/parts/states";
import { ToastProvider, useToasts } from "@/parts/toast";
import { go, Link, matchPath, useRoute } from "@/router/router";
import { findPresent, ROUTES } from "@/routes";
import { SessionProvider, useSessionDoor } from "@/session/session";

const MAX_TRIES = 2;

function makeQueries(): QueryClient {
  return new QueryClient({
    queryCache: new QueryCache(),
    defaultOptions: {
      queries: {
        staleTime: 2000,
        // The bar reports a server that does not answer; requests are repeated when it is back.
        retry: (numFailed, error) =>
          error instanceof Problem && error.mayPass && error.kind !== "away" && numFailed < MAX_TRIES,
        refetchOnWindowFocus: true,
        networkMode: "always",
      },
      mutations: { networkMode: "always" },
    },
  });
}

/** All of the console. */
export function App() {
  const [queries] = useState(makeQueries);
  return (
    <QueryClientProvider client={queries}>
      <SessionProvider>
        <ToastProvider>
          <Gate />
        </ToastProvider>
      </SessionProvider>
    </QueryClientProvider>
  );
}

function Gate() {
  const { state, retry } = useSessionDoor();
  const { path, query } = useRoute();
  useNoticeOfOtherTab(state);
  if (path === "/welcome") return <WelcomePage code={query.get("code") ?? ""} />;
  if (state.is === "asking") return <Loading what="Loading the console" />;
  if (state.is === "away") return <ErrorState error={new Problem("away", 0, AWAY)} retry={retry} />;
  if (state.is === "out") return <LoginPage />;
  return (
    <>
      <LiveProvider key={state.session.name}>
        <Shell>
          <Boundary key={path}>
            <Suspense fallback={<Loading />}>
              <Page />
            </Suspense>
          </Boundary>
        </Shell>
      </LiveProvider>
      {state.isOver && <LoginDialog user={state.session.name} />}
    </>
  );
}

/** Say that another tab has changed who is logged in: this tab cannot continue as another user. */
function useNoticeOfOtherTab(state: ReturnType<typeof useSessionDoor>["state"]): void {
  const toasts = useToasts();
  const name = state.is === "in" && state.isFromOtherTab ? state.session.name : null;
  // biome-ignore lint/correctness/useExhaustiveDependencies: told once for each who comes
  useEffect(() => {
    if (name !== null)
      toasts.tell(`Another tab of this browser logged in as ${name}, so this tab is now logged in as ${name} too.`);
  }, [name]);
}

const AWAY = "Can't reach the server. This page retries every few seconds.";

function Page() {
  const route = useRoute();
  const { path } = route;
  const present = findPresent(route);
  const found = ROUTES.map((route) => ({ route, names: matchPath(route.pattern, path) })).find(({ names }) => names);
  const title = found?.names?.job ?? found?.route.title;
  useEffect(() => {
    document.title = title ? `${title} · Legato` : "Legato";
    if (present) go(present.path, present.query, true);
  }, [title, present]);
  if (present) return null;
  if (!found?.names)
    return (
      <div className="page">
        <div className="page-head">
          <h1>Page not found</h1>
        </div>
        <Empty icon="search" title="There is no page at this address" action={<Link to="/jobs">Show all jobs</Link>}>
          Check the address, or start from the list of jobs.
        </Empty>
      </div>
    );
  const { page: Found } = found.route;
  return <Found names={found.names} />;
}
