// What went wrong while reading, with what to do next.
import type { ApiError } from "../api";
import { Icon } from "./Icon";

export function ErrorNote({ error, retry }: { error: ApiError; retry?: () => void }) {
  return (
    <div class="note bad" role="alert">
      <Icon name="warning" />
      <div>
        <strong>{error.message}</strong>
        {error.hint && <div class="hint">{error.hint}</div>}
        {error.fields.map(({ field, message }) => (
          <div key={field} class="hint">
            <code>{field}</code>: {message}
          </div>
        ))}
      </div>
      {retry && (
        <button type="button" class="small" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}
