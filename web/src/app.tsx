// The whole page: the session first, then the layout with the screen that the address names.
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "./api";
import { ErrorNote } from "./components/ErrorNote";
import { Layout, findScreen } from "./components/Layout";
import { go, path } from "./router";
import { NotFound } from "./screens/NotFound";
import { SignIn } from "./screens/SignIn";
import { loadSession, session, signInAddress } from "./session";

export function App() {
  const [error, setError] = useState<ApiError>();
  const load = () => {
    setError(undefined);
    loadSession().catch((error: unknown) => {
      const known = error instanceof ApiError ? error : new ApiError(0, "no_json", String(error));
      if (known.status === 401) go(signInAddress.peek(), { replace: true });
      else setError(known);
    });
  };
  const entering = path.value === "/enter";
  useEffect(() => {
    if (!entering && !session.peek()) load();
  }, [entering]);
  if (entering) return <SignIn />;
  if (!session.value) {
    return <div class="starting">{error ? <ErrorNote error={error} retry={load} /> : <p class="muted">Loading…</p>}</div>;
  }
  const found = findScreen(path.value);
  const Screen = found?.screen.component;
  return <Layout>{Screen ? <Screen key={path.value} {...found.values} /> : <NotFound />}</Layout>;
}
