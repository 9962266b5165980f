// The search field of the list of jobs, with completion. What is typed becomes the address when the typing pauses.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { type Known, type Suggestion, complete } from "../filter";
import { Icon } from "./Icon";

interface Props {
  value: string;
  onChange: (value: string) => void;
  known: Known;
  problems: readonly string[];
}

const PAUSE_MS = 250;

export function FilterBox({ value, onChange, known, problems }: Props) {
  const id = useId();
  const field = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(value);
  const [offer, setOffer] = useState<{ from: number; to: number; suggestions: Suggestion[] } | null>(null);
  const [chosen, setChosen] = useState(-1);
  const typed = useRef<{ timer: ReturnType<typeof setTimeout> | undefined; last: string }>({ timer: undefined, last: value });

  // The back button and the sidebar change the filter, too.
  useEffect(() => {
    if (value !== typed.current.last) {
      typed.current.last = value;
      setText(value);
    }
  }, [value]);
  useEffect(() => () => clearTimeout(typed.current.timer), []);

  const tell = (next: string, at: "now" | "soon") => {
    setText(next);
    typed.current.last = next.trim();
    clearTimeout(typed.current.timer);
    if (at === "now") onChange(next.trim());
    else typed.current.timer = setTimeout(() => onChange(next.trim()), PAUSE_MS);
  };
  const suggest = () => {
    const element = field.current;
    if (!element) return;
    const found = complete(element.value, element.selectionStart ?? element.value.length, known);
    setOffer(found.suggestions.length ? found : null);
    setChosen(-1);
  };
  const take = (suggestion: Suggestion) => {
    if (!offer) return;
    const open = suggestion.word.endsWith(":");
    const before = text.slice(0, offer.from) + suggestion.word + (open ? "" : " ");
    const next = before + text.slice(offer.to).trimStart();
    tell(next, open ? "soon" : "now");
    requestAnimationFrame(() => {
      field.current?.focus();
      field.current?.setSelectionRange(before.length, before.length);
      if (open) suggest();
      else setOffer(null);
    });
  };
  const list = offer ? offer.suggestions : [];
  return (
    <div class="filter-box">
      <div class="filter-field">
        <Icon name="search" />
        <input
          ref={field}
          // Not "search": that has a role of its own, and here are suggestions.
          type="text"
          data-search
          role="combobox"
          aria-label="Filter jobs"
          aria-expanded={offer !== null}
          aria-controls={`${id}-list`}
          aria-autocomplete="list"
          aria-activedescendant={chosen >= 0 ? `${id}-${chosen}` : undefined}
          aria-describedby={problems.length ? `${id}-problems` : undefined}
          placeholder="Filter: state:failed  type:index  tag:nightly  an id, or any text"
          autocomplete="off"
          spellcheck={false}
          value={text}
          onInput={(event) => {
            tell(event.currentTarget.value, "soon");
            suggest();
          }}
          onClick={suggest}
          onBlur={() => setOffer(null)}
          onKeyDown={(event) => {
            const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
            if (step) {
              event.preventDefault();
              if (!offer) suggest();
              else setChosen((chosen + step + list.length + (chosen < 0 && step < 0 ? 1 : 0)) % list.length);
            } else if ((event.key === "Enter" && chosen >= 0) || (event.key === "Tab" && !event.shiftKey && offer && text.trim() !== "")) {
              const one = list[Math.max(chosen, 0)];
              if (one) {
                event.preventDefault();
                take(one);
              }
            } else if (event.key === "Enter") {
              tell(text, "now");
              setOffer(null);
            } else if (event.key === "Escape") {
              event.preventDefault();
              if (offer) setOffer(null);
              else field.current?.blur();
            }
          }}
        />
        {text !== "" && (
          <button type="button" class="ghost small" aria-label="Clear the filter" onClick={() => tell("", "now")}>
            <Icon name="close" size={14} />
          </button>
        )}
        <kbd class="wide-only" aria-hidden="true">
          /
        </kbd>
      </div>
      <ul class="suggestions" id={`${id}-list`} role="listbox" aria-label="Suggestions" hidden={!offer}>
        {list.map((suggestion, index) => (
          <li
            key={suggestion.word}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === chosen}
            // Not click: the field would lose the focus first, and the list would be gone.
            onMouseDown={(event) => {
              event.preventDefault();
              take(suggestion);
            }}
          >
            <code>{suggestion.word}</code>
            <span class="muted">{suggestion.about}</span>
          </li>
        ))}
      </ul>
      {problems.length > 0 && (
        <p class="filter-problems" id={`${id}-problems`} role="status">
          <Icon name="warning" size={14} /> {problems.join("; ")}
        </p>
      )}
    </div>
  );
}
