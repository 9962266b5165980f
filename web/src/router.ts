// Where the user is. All state that is worth a link lies in the address: the path names the screen and its object, the query
// holds filters and what is open. Paths here begin with "/" and are below the base, which the daemon writes into index.html.
import { computed, signal } from "@preact/signals";

export type Query = Record<string, string | string[] | undefined>;

/** The folder that the dashboard is served from, with a slash at its end. */
export const base: string = typeof document === "undefined" ? "/" : new URL(document.baseURI).pathname;

interface Place {
  path: string;
  query: URLSearchParams;
}

/** Splits an address into the path below the base and its query. */
export function placeOf(pathname: string, search: string, below: string = base): Place {
  const path = pathname.startsWith(below) ? pathname.slice(below.length - 1) : pathname;
  return { path: path.length > 1 ? path.replace(/\/+$/, "") : "/", query: new URLSearchParams(search) };
}

const here = (): Place => (typeof location === "undefined" ? placeOf("/", "", "/") : placeOf(location.pathname, location.search));

const place = signal<Place>(here());

/** The path below the base: "/jobs/019a…". */
export const path = computed(() => place.value.path);
/** The query of the address. */
export const query = computed(() => place.value.query);

/** Writes a query with its keys in the order given; absent and empty values are left out. */
export function queryText(parts: Query): string {
  const out = new URLSearchParams();
  for (const [key, value] of Object.entries(parts)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== "") out.append(key, one);
  }
  // A filter is easier to read and to type with these as they are.
  return out.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
}

/** Returns the address of a screen, for `href`. */
export function href(to: string, parts?: Query): string {
  const text = parts ? queryText(parts) : "";
  return base + to.replace(/^\//, "") + (text ? `?${text}` : "");
}

/** Goes to an address that `href` returned. */
export function go(address: string, options: { replace?: boolean } = {}): void {
  const url = new URL(address, document.baseURI);
  if (url.pathname + url.search === location.pathname + location.search) return;
  if (options.replace) history.replaceState(null, "", url);
  else {
    history.pushState(null, "", url);
    scrollTo(0, 0);
  }
  place.value = here();
}

/** Changes some keys of the query and keeps the others. An absent value takes a key away. */
export function setQuery(change: Query, options: { replace?: boolean } = {}): void {
  const now: Query = {};
  for (const key of new Set(query.peek().keys())) now[key] = query.peek().getAll(key);
  go(href(path.peek(), { ...now, ...change }), options);
}

/** Returns the values of a pattern such as "/jobs/:id" in a path, or null if it does not fit. */
export function match(pattern: string, at: string): Record<string, string> | null {
  const want = pattern.split("/");
  const have = at.split("/");
  if (want.length !== have.length) return null;
  const values: Record<string, string> = {};
  for (const [index, part] of want.entries()) {
    const value = have[index] ?? "";
    if (part.startsWith(":")) {
      try {
        values[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return values;
}

/** Follows the back button, and clicks on links to our own screens. Called once, at the start. */
export function listen(): void {
  addEventListener("popstate", () => {
    place.value = here();
  });
  addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || link.target || link.hasAttribute("download") || link.dataset.external !== undefined) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || !url.pathname.startsWith(base)) return;
    if (url.hash && url.pathname === location.pathname && url.search === location.search) return;
    event.preventDefault();
    go(link.href);
  });
}
