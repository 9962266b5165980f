// Who looks at the page, and what they may do. A token that only reads sees no buttons.
import { computed, signal } from "@preact/signals";
import { type Schemas, get, onOutdated, onSessionEnd, post, remove, setCsrf } from "./api";
import { go, href, path, query } from "./router";

export type Scope = Schemas["Scope"];

/** The caller. Of the kind `open`: the daemon asks nobody who they are, so there is nothing to sign out of. */
export type Session = Schemas["SessionView"];

/** The session; undefined until it is known. */
export const session = signal<Session | undefined>(undefined);
/** True after the daemon has forgotten the session. */
export const ended = signal(false);

const scopes = computed(() => new Set(session.value?.scopes ?? []));

/** Returns true if the session has the scope. `admin` has all. */
export function can(scope: Scope): boolean {
  return scopes.value.has(scope) || scopes.value.has("admin");
}

/** Asks the daemon who we are. */
export async function loadSession(): Promise<void> {
  begin(await get("/session"));
}

/** Exchanges the code of a link for a session. */
export async function signIn(code: string): Promise<void> {
  begin(await post("/sign-in", { body: { code } }));
}

function begin(found: Session): void {
  setCsrf(found.csrf ?? null);
  session.value = found;
  ended.value = false;
}

let checking = false;
/** Asks again whether the session still lasts, after a stream broke. */
export function checkSession(): void {
  if (checking || ended.peek()) return;
  checking = true;
  loadSession()
    .catch(() => {})
    .finally(() => {
      checking = false;
    });
}

/** Ends the session here and at the daemon. */
export async function signOut(): Promise<void> {
  await remove("/session");
  session.value = undefined;
  go(href("/enter"));
}

/** The address of the sign-in page, which leads back to here. */
export const signInAddress = computed(() => {
  const text = query.value.toString();
  return href("/enter", { next: path.value + (text ? `?${text}` : "") });
});

onSessionEnd(() => {
  ended.value = true;
});
// The browser may have signed in again in another tab, which all tabs share.
onOutdated(loadSession);
if (typeof document !== "undefined") {
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && ended.peek()) loadSession().catch(() => {});
  });
}
