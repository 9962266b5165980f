// Who may come in: tokens without their secrets; and what was done by hand, as far as events tell.
import { useState } from "preact/hooks";
import { type Schemas, get, post, remove } from "../api";
import { commands } from "../commands";
import { Age } from "../components/Age";
import { confirm } from "../components/Confirm";
import { CopyLine } from "../components/CopyAs";
import { EmptyState } from "../components/EmptyState";
import { ErrorNote } from "../components/ErrorNote";
import { Page } from "../components/Page";
import { Table } from "../components/Table";
import { complain, say } from "../components/Toast";
import { useResource } from "../resource";
import { can, session } from "../session";
import { instant, now } from "../time";
import { AuditTrail } from "./AuditTrail";

type Token = Schemas["TokenView"];
type Scope = Schemas["Scope"];

const SCOPES: readonly [Scope, string][] = [
  ["read", "see jobs and everything else"],
  ["submit", "submit jobs, and make schedules"],
  ["cancel", "stop jobs, and try them again"],
  ["lease", "work: claim jobs and complete them"],
  ["admin", "all of it: pauses, policy, tokens"],
];

export function TokensScreen() {
  const admin = can("admin");
  const list = useResource(admin ? "tokens" : null, (signal) => get("/tokens", { signal }), { every: 30_000, keep: true });
  const tokens = list.data?.tokens ?? [];
  const [secret, setSecret] = useState<Schemas["NewToken"]>();

  const drop = async (token: Token) => {
    const agreed = await confirm({ title: `Remove the token ${token.name}?`, body: <p>Whoever uses it is refused from now on. This cannot be undone.</p>, action: "Remove the token", danger: true });
    if (!agreed) return;
    await remove("/tokens/{token_id}", { path: { token_id: token.token_id } });
    say(`Removed ${token.name}.`);
    list.refresh();
  };

  return (
    <Page title="Tokens and audit" copy={{ call: { path: "/tokens" }, cli: commands.tokens() }}>
      {!admin && (
        <p class="note">
          Only an admin sees tokens. You are {session.value?.name || "a token"} with {session.value?.scopes.join(", ") || "no scope"}.
        </p>
      )}
      {list.error && <ErrorNote error={list.error} retry={list.refresh} />}
      {secret && (
        <div class="note secret" role="status">
          <div>
            <strong>The token {secret.name}.</strong> It is shown once, and never again.
            <CopyLine text={secret.token} />
          </div>
          <button type="button" class="small" onClick={() => setSecret(undefined)}>
            I have it
          </button>
        </div>
      )}
      {admin && (
        <>
          <NewToken
            made={(token) => {
              setSecret(token);
              list.refresh();
            }}
          />
          <Table
            label="Tokens"
            keys
            count={tokens.length}
            row={(index) => tokens[index]}
            rowKey={(token) => token.token_id}
            rowClass={(token) => ((instant(token.expires_at) ?? Number.POSITIVE_INFINITY) < now.value ? "dim" : undefined)}
            columns={[
              { key: "name", title: "Name", track: "minmax(8rem, 1.5fr)", cell: (token) => <strong class="cut">{token.name}</strong> },
              { key: "scopes", title: "May", track: "minmax(9rem, 2fr)", cell: (token) => token.scopes.map((scope) => <span key={scope} class={scope === "admin" ? "tag strong" : "tag"}>{scope}</span>) },
              { key: "addon", title: "Only of", track: "minmax(6rem, 1fr)", from: "medium", cell: (token) => token.addon_id ?? <span class="muted">all addons</span> },
              { key: "created", title: "Made", track: "8rem", from: "medium", cell: (token) => <Age at={token.created_at} /> },
              { key: "expires", title: "Ends", track: "8rem", from: "medium", cell: (token) => <Age at={token.expires_at} none="never" /> },
              {
                key: "remove",
                title: <span class="hidden-text">Action</span>,
                track: "7rem",
                end: true,
                cell: (token) => (
                  <button type="button" class="small danger" onClick={() => drop(token).catch(complain)}>
                    Remove <span class="hidden-text">{token.name}</span>
                  </button>
                ),
              },
            ]}
            empty={
              !list.loading && (
                <EmptyState title="No token was made yet" commands={[commands.createToken()]}>
                  The first start wrote an admin's token to a file of the data directory. Give each program a smaller one.
                </EmptyState>
              )
            }
          />
        </>
      )}
      <AuditTrail />
    </Page>
  );
}

function NewToken({ made }: { made: (token: Schemas["NewToken"]) => void }) {
  const [name, setName] = useState("");
  const [addon, setAddon] = useState("");
  const [scopes, setScopes] = useState<readonly Scope[]>(["read"]);
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    setBusy(true);
    try {
      made(await post("/tokens", { body: { name: name.trim(), scopes: [...scopes], addon_id: addon.trim() || null } }));
      setName("");
    } catch (error) {
      complain(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <details class="card new-token">
      <summary>Make a token</summary>
      <form
        class="card-body form"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <label class="field">
          What it is for
          <input type="text" required maxLength={128} value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label class="field">
          Only this addon <span class="muted">(empty: all)</span>
          <input type="text" maxLength={128} pattern="[A-Za-z0-9._:\-]*" value={addon} onInput={(event) => setAddon(event.currentTarget.value)} />
        </label>
        <fieldset class="scopes">
          <legend>It may</legend>
          {SCOPES.map(([scope, what]) => (
            <label key={scope}>
              <input type="checkbox" checked={scopes.includes(scope)} onChange={(event) => setScopes(event.currentTarget.checked ? [...scopes, scope] : scopes.filter((one) => one !== scope))} />
              <strong>{scope}</strong> <span class="muted">{what}</span>
            </label>
          ))}
        </fieldset>
        <div>
          <button type="submit" class="primary" disabled={busy || !name.trim() || scopes.length === 0}>
            Make the token
          </button>
        </div>
      </form>
    </details>
  );
}
