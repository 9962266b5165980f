// What stands in the address of the sign-in page.

/** Returns the code of a link, of its end, or of the code itself; null if there is none. */
export function codeOf(text: string): string | null {
  return /(?:^|#)([0-9a-f]{64})$/.exec(text.trim())?.[1] ?? null;
}

/** Returns the screen to go to after signing in. It is always one of ours: never another host's, nor the sign-in page. */
export function nextOf(given: string | null): string {
  const path = `/${(given ?? "").replace(/^[/\\]+/, "")}`;
  return /^\/enter\b/.test(path) ? "/" : path;
}
