// Line icons, drawn here so that no font and no other host is needed. They repeat what the text beside them says.

const PATHS = {
  overview: "M3 13h4l3-9 4 16 3-7h4",
  jobs: "M4 6h16M4 12h16M4 18h10",
  addons: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM16.5 13v7M13 16.500h7",
  workers: "M12 3v3M12 18v3M3 12h3M18 12h3M7 7h10v10H7z",
  leases: "M8 11V8a4 4 0 0 1 8 0v3M6 11h12v9H6z",
  schedules: "M12 7v5l3 2M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
  machines: "M4 4h16v7H4zM4 13h16v7H4zM8 7.500h.01M8 16.500h.01",
  quiet: "M20 14.500A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.500z",
  decisions: "M12 3v6M12 9l-6 5v6M12 9l6 5v6",
  tokens: "M14.5 9.500a4.5 4.5 0 1 0-4 4.500l1.5 1.500h2V18h2.500v3H20v-3.500l-6-6a4.5 4.5 0 0 0 .5-2zM9 9h.01",
  wall: "M3 4h18v12H3zM8 20h8M12 16v4",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12.500l4.5 4.500L19 7.5",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M4.9 4.900l1.4 1.400M17.7 17.700l1.4 1.400M2 12h2M20 12h2M4.9 19.100l1.4-1.400M17.7 6.300l1.4-1.4",
  moon: "M20 14.500A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.500z",
  system: "M3 5h18v11H3zM9 20h6",
  pause: "M8 5v14M16 5v14",
  play: "M7 4.500l12 7.5-12 7.500z",
  warning: "M12 4l9 16H3zM12 10v4M12 17h.01",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8h.01",
  retry: "M20 12a8 8 0 1 1-2.5-5.800M20 3v5h-5",
  cancel: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM6 6l12 12",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  download: "M12 4v11M7 11l5 5 5-5M4 20h16",
  external: "M10 5H5v14h14v-5M14 4h6v6M20 4l-9 9",
  chevron: "M9 6l6 6-6 6",
  down: "M6 9l6 6 6-6",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  tree: "M12 4v4M12 8c0 4-7 3-7 8M12 8c0 4 7 3 7 8M12 8v8M12 4h.01M5 19h.01M12 19h.01M19 19h.01",
  out: "M10 5H5v14h5M14 8l4 4-4 4M18 12H9",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M7 14h10",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
