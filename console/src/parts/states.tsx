/** What a page shows while it has nothing to show: nothing there, not yet there, went wrong, not for you. */

import type { ReactNode } from "react";
import { Problem, sayProblem } from "@/api/problems";
import { Link } from "@/router/router";
import { Button } from "./button";
import { PagesReplaced } from "./fetched";
import { Icon, type IconName } from "./icon";

interface StateProps {
  icon: IconName;
  title: string;
  children?: ReactNode;
  action?: ReactNode;
  isBad?: boolean;
}

function State({ icon, title, children, action, isBad }: StateProps) {
  return (
    <div className={isBad ? "state state-bad" : "state"} role={isBad ? "alert" : "status"}>
      <div className="state-sign">
        <Icon name={icon} size={20} />
      </div>
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {action}
    </div>
  );
}

/** Nothing is there, which is no mistake; says what to do to have something. */
export function Empty({ icon = "info", ...rest }: Omit<StateProps, "isBad" | "icon"> & { icon?: IconName }) {
  return <State icon={icon} {...rest} />;
}

/** The answer is on its way: grey lines where it will be. */
export function Loading({ what = "Loading", numLines = 6 }: { what?: string; numLines?: number }) {
  return (
    <div className="bones" role="status">
      <span className="only-heard">{what}…</span>
      {Array.from({ length: numLines }, (_, line) => (
        <div key={line} className="bone" style={{ width: `${94 - ((line * 23) % 47)}%` }} />
      ))}
    </div>
  );
}

/** A request went wrong; says why, and offers to try again. A refusal by rights is shown as such. */
export function ErrorState({ error, retry, what = "this" }: { error: unknown; retry?: () => void; what?: string }) {
  if (error instanceof Problem && error.status === 403) return <NoPermission>{error.message}</NoPermission>;
  if (error instanceof Problem && error.status === 404) {
    return (
      <State icon="search" title="Not found" action={<Link to="/jobs">Show all jobs</Link>}>
        {error.message}
      </State>
    );
  }
  if (error instanceof PagesReplaced) {
    const reload = (
      <Button look="main" onClick={() => window.location.reload()}>
        Reload
      </Button>
    );
    return (
      <State icon="info" title="The console was updated" action={reload}>
        {error.message} Reload to use the new version.
      </State>
    );
  }
  const isAway = error instanceof Problem && error.kind === "away";
  const again = retry && <Button onClick={retry}>Try again</Button>;
  return (
    <State icon="alert" title={isAway ? "Can't reach the server" : `Could not show ${what}`} isBad action={again}>
      {sayProblem(error)}
    </State>
  );
}

/** Who is logged in may not see or do this. */
export function NoPermission({ children }: { children?: ReactNode }) {
  return (
    <State icon="lock" title="No access">
      {children ?? "Ask an administrator for access."}
    </State>
  );
}

type Tone = "good" | "warn" | "bad" | "info" | "quiet";
const NOTE_ICONS: Record<Tone, IconName> = { good: "check", warn: "alert", bad: "alert", info: "info", quiet: "info" };

/** A remark in the middle of a page. */
export function Note({ tone = "info", children }: { tone?: Tone; children: ReactNode }) {
  return (
    <div className={`note tone-${tone}`} role={tone === "bad" ? "alert" : undefined}>
      <Icon name={NOTE_ICONS[tone]} size={15} />
      <div className="grow">{children}</div>
    </div>
  );
}

interface Asked<A> {
  data: A | undefined;
  error: unknown;
  isPending: boolean;
  refetch: () => unknown;
}

/** Show an answer when it is there, and else how far it is. An answer that could not be asked again stays to be seen. */
export function Answered<A>({
  asked,
  what,
  children,
}: {
  asked: Asked<A>;
  what?: string;
  children: (answer: A) => ReactNode;
}) {
  if (asked.data !== undefined) return <>{children(asked.data)}</>;
  if (asked.error)
    return <ErrorState error={asked.error} retry={() => void asked.refetch()} {...(what ? { what } : {})} />;
  return <Loading />;
}
