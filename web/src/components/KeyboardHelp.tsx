// The list of keys that work on this screen, opened by `?`.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { listed } from "../keys";

export const helpOpen = signal(false);

export function KeyboardHelp() {
  return helpOpen.value ? <Help /> : null;
}

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const groups = new Map<string, Map<string, string>>();
  for (const { group, keys, label } of listed.value) {
    if (!groups.has(group)) groups.set(group, new Map());
    groups.get(group)?.set(keys, label);
  }
  return (
    <dialog ref={dialog} class="dialog keyboard-help" aria-labelledby="keys-title" onClose={() => (helpOpen.value = false)}>
      <h2 id="keys-title">Keyboard</h2>
      <div class="key-groups">
        {[...groups].map(([group, keys]) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {[...keys].map(([key, label]) => (
                <div key={key}>
                  <dt>
                    {key.split(" ").map((one) => (
                      <kbd key={one}>{one}</kbd>
                    ))}
                  </dt>
                  <dd>{label}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <div class="dialog-buttons">
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  );
}
