// A layout of the jobs that a job waits for: in columns, each job right of all that it depends on.

export interface Node {
  id: string;
  /** What it depends on; ids that are not nodes are left out. */
  after: readonly string[];
}

export interface Placed {
  id: string;
  column: number;
  row: number;
}

/** Places the nodes. A cycle, which the daemon refuses, would end where it was entered. */
export function layered(nodes: readonly Node[]): Placed[] {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const columns = new Map<string, number>();
  const open = new Set<string>();
  const columnOf = (id: string): number => {
    const known = columns.get(id);
    if (known !== undefined) return known;
    if (open.has(id)) return 0;
    open.add(id);
    let column = 0;
    for (const before of byId.get(id)?.after ?? []) if (byId.has(before)) column = Math.max(column, columnOf(before) + 1);
    open.delete(id);
    columns.set(id, column);
    return column;
  };
  for (const { id } of nodes) columnOf(id);
  const lanes: string[][] = [];
  for (const { id } of nodes) {
    const column = columns.get(id) ?? 0;
    lanes[column] ??= [];
    lanes[column]?.push(id);
  }
  // Each column is ordered by where its predecessors stand, once: few lines cross then.
  const rows = new Map<string, number>();
  for (const lane of lanes) {
    const weight = (id: string): number => {
      const before = (byId.get(id)?.after ?? []).map((one) => rows.get(one)).filter((row) => row !== undefined);
      return before.length ? before.reduce((sum, row) => sum + row, 0) / before.length : 0;
    };
    lane?.sort((a, b) => weight(a) - weight(b));
    for (const [row, id] of (lane ?? []).entries()) rows.set(id, row);
  }
  return nodes.map(({ id }) => ({ id, column: columns.get(id) ?? 0, row: rows.get(id) ?? 0 }));
}
