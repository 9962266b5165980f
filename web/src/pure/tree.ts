// The nodes of a live tree, which come as a list with depths, as a tree. Siblings without children that are alike are one node with
// a count: a loop's thousand tasks are one line.
import type { Schemas } from "../api";

type LiveNode = Schemas["LiveNode"];

export interface TreeNode {
  key: string;
  label: string;
  state: string;
  waiting_for: string | null;
  /** The age of the oldest. */
  age_ms: number;
  times: number;
  children: TreeNode[];
}

/** A label without the number that makes it unlike its siblings. */
const kind = (label: string): string => label.replace(/#?\d+/g, "#");
/** Fewer siblings that are alike are shown one by one. */
const FEW = 4;

export function nested(nodes: readonly LiveNode[]): TreeNode[] {
  const roots: TreeNode[] = [];
  const path: TreeNode[] = [];
  for (const [index, node] of nodes.entries()) {
    const one: TreeNode = { key: `${index} ${node.label}`, label: node.label, state: node.state, waiting_for: node.waiting_for ?? null, age_ms: node.age_ms, times: 1, children: [] };
    // A report that leaves nodes out may skip a depth.
    path.length = Math.min(path.length, node.depth);
    (path.at(-1)?.children ?? roots).push(one);
    path.push(one);
  }
  return roots.map(summarised);
}

function summarised(node: TreeNode): TreeNode {
  const groups = new Map<string, TreeNode[]>();
  for (const child of node.children.map(summarised)) {
    const alike = child.children.length ? child.key : JSON.stringify([kind(child.label), child.state, kind(child.waiting_for ?? "")]);
    const group = groups.get(alike);
    if (group) group.push(child);
    else groups.set(alike, [child]);
  }
  const children = [...groups.values()].flatMap((group) => {
    const [first] = group;
    if (!first || group.length < FEW) return group;
    return [{ ...first, label: kind(first.label), times: group.length, age_ms: Math.max(...group.map(({ age_ms }) => age_ms)) }];
  });
  return { ...node, children };
}
