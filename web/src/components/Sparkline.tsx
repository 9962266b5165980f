// A small line without axes: the course of a value, whose last one stands beside it as a number.

interface Props {
  values: readonly (number | null)[];
  label: string;
  width?: number;
  height?: number;
  /** The top of the scale; the largest value if absent. */
  max?: number;
}

/** The path of the values; a gap where one is absent. */
export function linePath(values: readonly (number | null)[], width: number, height: number, top: number): string {
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  let path = "";
  let drawing = false;
  for (const [index, value] of values.entries()) {
    if (value === null) {
      drawing = false;
      continue;
    }
    const y = height - (Math.min(Math.max(value, 0), top) / (top || 1)) * height;
    path += `${drawing ? "L" : "M"}${(index * step).toFixed(1)} ${y.toFixed(1)}`;
    drawing = true;
  }
  return path;
}

export function Sparkline({ values, label, width = 96, height = 22, max }: Props) {
  const top = max ?? Math.max(...values.map((value) => value ?? 0), 0);
  return (
    <svg class="sparkline" width={width} height={height} viewBox={`-1 -1 ${width + 2} ${height + 2}`} role="img" aria-label={label} preserveAspectRatio="none">
      <path d={linePath(values, width, height, top)} />
    </svg>
  );
}
