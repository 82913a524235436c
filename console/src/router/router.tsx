/**
 * Addresses of pages behind the `#`, so that the server knows one page. `#/jobs?stage=running` is path "/jobs" and a query.
 * No library: wouter keeps the query before the `#`, which would break links; React Router is many times larger.
 */

import { type AnchorHTMLAttributes, type ReactNode, useCallback, useSyncExternalStore } from "react";

export interface Route {
  /** Begins with a slash and has none at its end, such as `/jobs/j-37efnd0000`. */
  path: string;
  query: URLSearchParams;
}

/** What a page gets: the names in its address. */
export interface PageProps {
  names: Record<string, string>;
}

type QueryValues = Record<string, string | number | null | undefined | readonly string[]>;

/** Return the route of a hash. Whatever cannot be read is the first page. */
export function readRoute(hash: string): Route {
  const text = hash.startsWith("#") ? hash.slice(1) : hash;
  const [path = "", ...rest] = text.split("?");
  const clean = `/${path.split("/").filter(Boolean).join("/")}`;
  return { path: clean, query: new URLSearchParams(rest.join("?")) };
}

/** Return the hash of a path and its query; names without a value are left out. */
export function makeHash(path: string, query: QueryValues | URLSearchParams = {}): string {
  const pairs = query instanceof URLSearchParams ? query : new URLSearchParams();
  if (!(query instanceof URLSearchParams)) {
    for (const [name, value] of Object.entries(query)) {
      if (value === null || value === undefined || value === "") continue;
      for (const each of Array.isArray(value) ? value : [value]) pairs.append(name, String(each));
    }
  }
  const told = pairs.toString();
  return `#${path}${told ? `?${told}` : ""}`;
}

/** Return the names in a pattern such as `/jobs/:job`, or null if the path is another one. */
export function matchPath(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/").filter(Boolean);
  const found = path.split("/").filter(Boolean);
  if (wanted.length !== found.length) return null;
  const names: Record<string, string> = {};
  for (const [place, part] of wanted.entries()) {
    const value = found[place] as string;
    if (part.startsWith(":")) {
      try {
        names[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return names;
}

function subscribe(told: () => void): () => void {
  window.addEventListener("hashchange", told);
  return () => window.removeEventListener("hashchange", told);
}

/** Return where the page is. */
export function useRoute(): Route {
  const hash = useSyncExternalStore(subscribe, () => window.location.hash);
  return readRoute(hash);
}

/** Go to another page; `replaces`: the way back leaves the present one out. */
export function go(path: string, query: QueryValues | URLSearchParams = {}, replaces = false): void {
  const hash = makeHash(path, query);
  if (replaces) {
    window.history.replaceState(null, "", hash);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else window.location.hash = hash;
}

/** Return one value of the address's query and how to set it (null: away with it), without a step for the way back. */
export function useQueryValue(name: string, otherwise = ""): [string, (value: string | null) => void] {
  const route = useRoute();
  const set = useCallback(
    (value: string | null) => {
      const now = readRoute(window.location.hash);
      if (value === null || value === otherwise) now.query.delete(name);
      else now.query.set(name, value);
      go(now.path, now.query, true);
    },
    [name, otherwise],
  );
  return [route.query.get(name) ?? otherwise, set];
}

type LinkProps = Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href"> & {
  to: string;
  query?: QueryValues | URLSearchParams;
  children: ReactNode;
};

/** A link to another page of the console. */
export function Link({ to, query, children, ...rest }: LinkProps) {
  return (
    <a {...rest} href={makeHash(to, query)}>
      {children}
    </a>
  );
}
