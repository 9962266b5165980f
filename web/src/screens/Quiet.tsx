// When this machine is quiet, and what the policy makes of it: the week as a heat map, the stretches of quiet, and the policy,
// whose changes are tried on the recorded load before they are applied.
import { useEffect, useState } from "preact/hooks";
import { ApiError, type Schemas, callToml, get } from "../api";
import { commands } from "../commands";
import { Card } from "../components/Card";
import { confirm } from "../components/Confirm";
import { ErrorNote } from "../components/ErrorNote";
import { LoadChart } from "../components/LoadChart";
import { Page } from "../components/Page";
import { QuietBadge } from "../components/QuietBadge";
import { SignalTable } from "../components/SignalTable";
import { complain, say } from "../components/Toast";
import { WeekMap } from "../components/WeekMap";
import { changedFields, FIELDS, type PolicyField, readNumber, readText, readValue, typed, written, writeValue } from "../pure/policy-text";
import { readSignals } from "../pure/signals";
import { useResource } from "../resource";
import { can } from "../session";
import { clock, exactTime, instant, span } from "../time";
import { loadWeek, PreviewResult, type Preview, previewPolicy } from "./QuietPreview";

export function QuietScreen() {
  const status = useResource("status", (signal) => get("/status", { signal }), { live: { event: ["LOAD_STATE"] }, every: 5000, keep: true });
  const policy = useResource("policy", (signal) => callToml("get", "/policy", { signal }), { keep: true });
  const text = policy.data ?? "";
  const zone = readText(text, "quiet.time_zone") || "UTC";
  const week = useResource("week", (signal) => loadWeek(signal), { every: 300_000, keep: true });
  const load = useResource("day", (signal) => get("/load", { query: { by: "minute", limit: 1440 }, signal }), { every: 60_000, keep: true });
  const latest = useResource("latest", (signal) => get("/load", { query: { by: "sample", limit: 1 }, signal }), { every: 3000, keep: true });
  const node = status.data?.nodes[0];
  const quietMax = readNumber(text, "quiet.quiet_max") ?? 2;
  const bounds = { quiet: quietMax, normal: readNumber(text, "quiet.normal_max") ?? 5, busy: readNumber(text, "quiet.busy_max") ?? 7 };
  const last = latest.data?.samples[0];
  const samples = load.data?.samples ?? [];

  return (
    <Page title="Quiet" beside={node && <QuietBadge state={node.state} />} about={node && (node.load_ignored ? "The policy ignores the load of this machine." : `${node.node_id} is ${node.state.toLowerCase()} since ${clock(instant(node.since) ?? 0)}, busy ${node.busy.toFixed(1)} of 10.`)} copy={{ call: { path: "/policy" }, cli: commands.policy() }}>
      {policy.error && <ErrorNote error={policy.error} retry={policy.refresh} />}
      <div class="columns quiet-columns">
        <Card title="The week" beside={<span class="muted">{zone}</span>}>
          <WeekMap samples={week.data ?? []} zone={zone} bounds={bounds} />
        </Card>
        <Card title="Now">
          {last ? <SignalTable signals={readSignals(last, text, quietMax)} /> : <p class="muted">Nothing was measured yet.</p>}
          <h3 class="sub">Quiet stretches of the last 24 hours</h3>
          <Streaks streaks={node?.streaks ?? []} minimum={readText(text, "quiet.min_streak")} />
        </Card>
      </div>
      <Card title="The last day" beside={<span class="muted">averages by the minute</span>}>
        {samples.length > 1 ? <LoadChart samples={samples} /> : <p class="muted">Averages by the minute appear after two minutes; the overview has each measurement.</p>}
      </Card>
      {policy.data !== undefined && <PolicyEditor key={policy.data} text={policy.data} applied={policy.refresh} />}
    </Page>
  );
}

function Streaks({ streaks, minimum }: { streaks: readonly Schemas["Streak"][]; minimum: string | undefined }) {
  if (streaks.length === 0) return <p class="muted">None yet{minimum && !/^0/.test(minimum) ? `: one counts after ${minimum}` : ""}.</p>;
  const longest = streaks.map((streak) => ({ ...streak, from: instant(streak.start) ?? 0, to: instant(streak.end) ?? 0 })).sort((a, b) => b.to - b.from - (a.to - a.from));
  const whole = Math.max(1, (longest[0]?.to ?? 0) - (longest[0]?.from ?? 0));
  return (
    <ul class="streaks">
      {longest.slice(0, 6).map((streak) => (
        <li key={streak.start} title={`${exactTime(streak.from)} to ${exactTime(streak.to)}`}>
          <span class="num nowrap">
            {clock(streak.from).slice(0, 5)} – {clock(streak.to).slice(0, 5)}
          </span>
          <span class="streak-track" aria-hidden="true">
            <span style={{ width: `${((streak.to - streak.from) / whole) * 100}%` }} />
          </span>
          <span class="num nowrap">{span((streak.to - streak.from) / 1000)}</span>
          <span class="num muted nowrap">busy {streak.average.toFixed(1)}</span>
        </li>
      ))}
    </ul>
  );
}

function PolicyEditor({ text, applied }: { text: string; applied: () => void }) {
  const [draft, setDraft] = useState(text);
  const [raw, setRaw] = useState(false);
  const [problem, setProblem] = useState<ApiError>();
  const [preview, setPreview] = useState<Preview>();
  const [busy, setBusy] = useState(false);
  const changed = draft !== text;
  const editable = can("admin");

  // What was seen was of another draft.
  useEffect(() => setPreview(undefined), [draft]);
  useEffect(() => {
    setProblem(undefined);
    if (!changed) return;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      callToml("post", "/policy/validate", { body: draft, signal: abort.signal }).catch((error: unknown) => {
        if (error instanceof ApiError && !abort.signal.aborted) setProblem(error);
      });
    }, 300);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [draft, changed]);

  const look = async () => {
    setBusy(true);
    try {
      setPreview(await previewPolicy(draft));
    } catch (error) {
      if (error instanceof ApiError) setProblem(error);
      else complain(error);
    } finally {
      setBusy(false);
    }
  };
  const apply = async () => {
    const names = changedFields(text, draft).map((field) => field.path);
    const agreed = await confirm({
      title: "Apply this policy?",
      body: (
        <>
          <p>{names.length > 0 ? `It changes ${names.join(", ")}.` : "It changes the text only beyond the fields above."} The next decision uses it.</p>
          {!preview && <p class="hint">You have not looked at what the last week would have run.</p>}
        </>
      ),
      action: "Apply the policy",
    });
    if (!agreed) return;
    setBusy(true);
    try {
      await callToml("put", "/policy", { body: draft });
      say("The policy is in force.");
      applied();
    } catch (error) {
      if (error instanceof ApiError) setProblem(error);
      else complain(error);
    } finally {
      setBusy(false);
    }
  };

  return (
    <Card
      title="Policy"
      class="policy"
      beside={
        <button type="button" class="small toggle" aria-pressed={raw} onClick={() => setRaw(!raw)}>
          As text
        </button>
      }
    >
      {raw ? (
        <label class="field">
          <span class="hidden-text">The policy as TOML</span>
          <textarea class="policy-text" rows={24} spellcheck={false} value={draft} readOnly={!editable} onInput={(event) => setDraft(event.currentTarget.value)} />
        </label>
      ) : (
        <div class="policy-fields">
          {FIELDS.map((field) => (
            <Field key={field.path} field={field} before={text} draft={draft} editable={editable} change={(value) => setDraft(writeValue(draft, field.path, written(field.kind, value)))} />
          ))}
        </div>
      )}
      {problem && <ErrorNote error={problem} />}
      <div class="policy-actions">
        <button type="button" disabled={!changed || busy || problem !== undefined} onClick={() => void look()}>
          Preview: what would last week have run?
        </button>
        {editable && (
          <button type="button" class="primary" disabled={!changed || busy || problem !== undefined} onClick={() => void apply()}>
            Apply
          </button>
        )}
        {changed && (
          <button type="button" class="ghost" onClick={() => setDraft(text)}>
            Discard changes
          </button>
        )}
        {!editable && <span class="muted">Only an admin may change the policy.</span>}
      </div>
      {preview && <PreviewResult preview={preview} />}
    </Card>
  );
}

function Field({ field, before, draft, editable, change }: { field: PolicyField; before: string; draft: string; editable: boolean; change: (value: string) => void }) {
  const value = typed(field.kind, readValue(draft, field.path));
  const old = typed(field.kind, readValue(before, field.path));
  const changed = value !== old;
  const props = { value, disabled: !editable, "aria-describedby": `${field.path}-help` };
  return (
    <label class={changed ? "field policy-field changed" : "field policy-field"}>
      <span>
        {field.label} {changed && <span class="badge state-warn">was {old || "not set"}</span>}
      </span>
      {field.kind === "list" ? (
        <textarea rows={2} placeholder="22:00-06:00 Europe/Berlin" {...props} onInput={(event) => change(event.currentTarget.value)} />
      ) : field.kind === "number" ? (
        <input type="number" step="any" {...props} onInput={(event) => change(event.currentTarget.value)} />
      ) : (
        <input type="text" {...props} onInput={(event) => change(event.currentTarget.value)} />
      )}
      <span class="hint" id={`${field.path}-help`}>
        {field.help}
      </span>
    </label>
  );
}
