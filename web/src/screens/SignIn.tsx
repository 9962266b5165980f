// Signing in: the link of `jobtree dashboard` leads here with a code behind "#", where no server and no log sees it. The code
// leaves the address before anything else happens, and is exchanged for a cookie that no script can read.
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api";
import { commands } from "../commands";
import { CopyLine } from "../components/CopyAs";
import { ErrorNote } from "../components/ErrorNote";
import { codeOf, nextOf } from "../pure/signIn";
import { go, href, query } from "../router";
import { loadSession, signIn } from "../session";

/** Takes the code out of the address, so that it stays in no history. */
function takeCode(): string | null {
  const code = codeOf(location.hash);
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  return code;
}

export function SignIn() {
  const [busy, setBusy] = useState(true);
  const [error, setError] = useState<ApiError>();
  const [text, setText] = useState("");
  const enter = (entering: Promise<void>, quiet = false) => {
    setBusy(true);
    setError(undefined);
    entering.then(
      () => go(href(nextOf(query.peek().get("next"))), { replace: true }),
      (error: unknown) => {
        setBusy(false);
        const known = error instanceof ApiError ? error : new ApiError(0, "no_json", String(error));
        if (!quiet || known.status !== 401) setError(known);
      },
    );
  };
  useEffect(() => {
    document.title = "Sign in · jobtree";
    const useCode = () => {
      const code = takeCode();
      // Without one, the browser may have a session already.
      enter(code ? signIn(code) : loadSession(), !code);
    };
    useCode();
    addEventListener("hashchange", useCode);
    return () => removeEventListener("hashchange", useCode);
  }, []);
  const code = codeOf(text);
  return (
    <main class="sign-in" aria-busy={busy}>
      <h1>
        <img src="favicon.svg" alt="" width="28" height="28" /> jobtree
      </h1>
      {busy ? (
        <p class="muted" role="status">
          Signing in…
        </p>
      ) : (
        <>
          {error && <ErrorNote error={error} />}
          <p>On the machine of the daemon, or where its token is, run</p>
          <CopyLine text={commands.dashboard()} />
          <p>and open the link that it prints, within a minute. Or paste it here:</p>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              if (code) enter(signIn(code));
            }}
          >
            <label class="field">
              <span>Link</span>
              <input type="text" value={text} autoComplete="off" spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} />
            </label>
            <button type="submit" class="primary" disabled={!code}>
              Sign in
            </button>
          </form>
        </>
      )}
    </main>
  );
}
