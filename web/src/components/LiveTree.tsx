// The jobs below a running job in its worker's process: nurseries and tasks, with what each waits for. The worker reports them with
// its heartbeats, so they are some seconds old.
import { useState } from "preact/hooks";
import { ApiError, get } from "../api";
import { type TreeNode, nested } from "../pure/tree";
import { useResource } from "../resource";
import { span } from "../time";
import { plural } from "../units";
import { Age } from "./Age";
import { Card } from "./Card";
import { ErrorNote } from "./ErrorNote";
import { Icon } from "./Icon";

export function LiveTree({ jobId }: { jobId: string }) {
  const tree = useResource(
    `tree ${jobId}`,
    (signal) =>
      get("/queue/jobs/{job_id}/tree", { path: { job_id: jobId }, signal }).catch((error: unknown) => {
        // A worker that is not ours reports no tree.
        if (error instanceof ApiError && error.status === 404) return null;
        throw error;
      }),
    { every: 1000 },
  );
  if (!tree.data) return tree.error ? <ErrorNote error={tree.error} /> : null;
  const { nodes, left_out } = tree.data.tree;
  return (
    <Card
      title="Live job tree"
      beside={
        <span class="muted">
          {plural(nodes.length + (left_out ?? 0), "job")}, reported <Age at={tree.data.at} />
        </span>
      }
    >
      <ul class="live-tree">
        {nested(nodes).map((node) => (
          <Branch key={node.key} node={node} />
        ))}
      </ul>
      {(left_out ?? 0) > 0 && <p class="muted">{plural(left_out ?? 0, "more job")} below, left out of the report.</p>}
    </Card>
  );
}

function Branch({ node }: { node: TreeNode }) {
  const [open, setOpen] = useState(true);
  const { children } = node;
  const state = node.state.toLowerCase();
  return (
    <li>
      <div class={`tree-row tree-${state}`}>
        {children.length > 0 ? (
          <button type="button" class="ghost tree-fold" aria-expanded={open} aria-label={open ? "Fold" : "Unfold"} onClick={() => setOpen(!open)}>
            <Icon name={open ? "down" : "chevron"} size={12} />
          </button>
        ) : (
          <span class="tree-fold" />
        )}
        <span class="tree-label">{node.label}</span>
        {node.times > 1 && <span class="tag">× {node.times}</span>}
        <span class="tree-state">{state}</span>
        {node.waiting_for && <span class="muted">waits for {node.waiting_for}</span>}
        <span class="muted num push">{span(node.age_ms / 1000)}</span>
      </div>
      {open && children.length > 0 && (
        <ul>
          {children.map((child) => (
            <Branch key={child.key} node={child} />
          ))}
        </ul>
      )}
    </li>
  );
}
