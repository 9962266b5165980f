// A job's output: follows while it runs, searches, shows one attempt, and downloads. Only the lines that are seen are in the page.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "../api";
import { useCommands } from "../keys";
import type { Bar } from "../pure/jobTimeline";
import { LogLines, ofAttempt, search } from "../pure/logLines";
import { clock, exactTime } from "../time";
import { bytes, count, plural } from "../units";
import { Icon } from "./Icon";
import { rowsSeen } from "./Table";

const LINE = 19;
const WAIT_SEC = 20;

export function LogView({ jobId, attempts, running, ended }: { jobId: string; attempts: readonly Bar[]; running: boolean; ended: boolean }) {
  const log = useRef(new LogLines());
  const box = useRef<HTMLDivElement>(null);
  const [version, setVersion] = useState(0);
  const [error, setError] = useState<string>();
  const [follow, setFollow] = useState(true);
  const [attempt, setAttempt] = useState<number | null>(null);
  const [text, setText] = useState("");
  const [hit, setHit] = useState(0);
  const [view, setView] = useState({ top: 0, height: 400 });

  useEffect(() => {
    const abort = new AbortController();
    log.current = new LogLines();
    (async () => {
      for (;;) {
        const lines = log.current;
        try {
          const page = await get("/queue/jobs/{job_id}/log", { path: { job_id: jobId }, query: { after: lines.next, ...(document.hidden ? {} : { wait_sec: WAIT_SEC }) }, signal: abort.signal });
          const news = lines.add(page);
          setError(undefined);
          setVersion((version) => version + 1);
          if (page.ended && !news) return;
          // Output in small pieces is rendered a few times a second.
          await pause(news ? 200 : document.hidden ? 2000 : 0, abort.signal);
        } catch (failure) {
          if (abort.signal.aborted) return;
          setError(failure instanceof Error ? failure.message : String(failure));
          await pause(3000, abort.signal);
        }
        if (abort.signal.aborted) return;
      }
    })();
    return () => abort.abort();
    // A job that is tried again writes on: `running` begins anew then.
  }, [jobId, running]);

  const chosen = attempt === null ? undefined : attempts[attempt];
  const all = log.current.shown;
  const lines = useMemo(() => (chosen ? ofAttempt(all, chosen.from, chosen.to) : all), [version, chosen?.from, chosen?.to]);
  const found = useMemo(() => search(lines, text), [lines, text]);
  const at = found.length ? found[Math.min(hit, found.length - 1)] : undefined;

  useLayoutEffect(() => {
    const element = box.current;
    if (follow && element && text === "") element.scrollTop = element.scrollHeight;
  }, [lines.length, follow, text === ""]);
  useEffect(() => {
    const element = box.current;
    if (at === undefined || !element) return;
    setFollow(false);
    element.scrollTop = Math.max(0, at * LINE - element.clientHeight / 2);
  }, [at]);
  useLayoutEffect(() => {
    const element = box.current;
    if (element) setView({ top: element.scrollTop, height: element.clientHeight });
  }, [lines.length]);

  const step = (by: number) => found.length && setHit((old) => (Math.min(old, found.length - 1) + by + found.length) % found.length);
  useCommands([
    { keys: "n", label: "Next find in the log", group: "Job", run: () => step(1) },
    { keys: "Shift+N", label: "Previous find in the log", group: "Job", run: () => step(-1) },
    { keys: "f", label: "Follow the log", group: "Job", run: () => setFollow(!follow) },
  ]);
  const download = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([chosen ? lines.map((line) => line.text).join("\n") : log.current.whole], { type: "text/plain" }));
    link.download = `log-${jobId}.txt`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  const [from, to] = rowsSeen(view.top, view.height, LINE, lines.length);
  return (
    <section class="card log" aria-labelledby="log-title">
      <header>
        <h2 id="log-title">Log</h2>
        <span class="muted">{lines.length ? plural(lines.length, "line") : ""}</span>
        {attempts.length > 1 && (
          <select aria-label="Attempt" value={attempt ?? ""} onChange={(event) => setAttempt(event.currentTarget.value === "" ? null : Number(event.currentTarget.value))}>
            <option value="">all attempts</option>
            {attempts.map((bar, index) => (
              <option key={bar.from} value={index}>
                {bar.label}, {clock(bar.from)}
              </option>
            ))}
          </select>
        )}
        <div class="push log-tools">
          <input
            type="text"
            placeholder="Search"
            aria-label="Search the log"
            value={text}
            onInput={(event) => {
              setText(event.currentTarget.value);
              setHit(0);
            }}
            onKeyDown={(event) => {
              if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
              else if (event.key === "Escape") setText("");
            }}
          />
          {text !== "" && <span class="muted num" role="status">{found.length ? `${count(Math.min(hit, found.length - 1) + 1)} of ${count(found.length)}` : "none"}</span>}
          <button type="button" class="small toggle" aria-pressed={follow} onClick={() => setFollow(!follow)}>
            <Icon name="down" size={14} /> Follow
          </button>
          <button type="button" class="ghost small" aria-label="Download the log" title="Download" disabled={!all.length} onClick={download}>
            <Icon name="download" />
          </button>
        </div>
      </header>
      {error && <p class="log-note">{error}</p>}
      {log.current.leftOut > 0 && <p class="log-note">{bytes(log.current.leftOut)} were left out: the daemon keeps the beginning and the end.</p>}
      {lines.length === 0 ? (
        <p class="log-note">{ended ? "Nothing was printed." : "Nothing was printed yet."}</p>
      ) : (
        <div
          class="log-box"
          ref={box}
          tabIndex={0}
          role="region"
          aria-label="Output of the job"
          onScroll={(event) => {
            const element = event.currentTarget;
            setView({ top: element.scrollTop, height: element.clientHeight });
            const end = element.scrollTop + element.clientHeight > element.scrollHeight - LINE * 2;
            if (follow && !end) setFollow(false);
          }}
        >
          <div class="log-lines" style={{ height: `${lines.length * LINE}px` }}>
            {lines.slice(from, to).map((line, index) => (
              <div key={from + index} class={from + index === at ? "log-line hit" : "log-line"} style={{ transform: `translateY(${(from + index) * LINE}px)` }}>
                <span class="log-time" title={line.at === null ? undefined : exactTime(line.at)}>
                  {line.at === null ? "" : clock(line.at)}
                </span>
                <span>{text === "" ? line.text : marked(line.text, text)}</span>
              </div>
            ))}
          </div>
        </div>
      )}
    </section>
  );
}

const pause = (ms: number, signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });

function marked(line: string, text: string) {
  const parts: preact.ComponentChild[] = [];
  const lower = line.toLowerCase();
  const wanted = text.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    parts.push(line.slice(from, at), <mark key={at}>{line.slice(at, at + wanted.length)}</mark>);
    from = at + wanted.length;
  }
  parts.push(line.slice(from));
  return parts;
}
