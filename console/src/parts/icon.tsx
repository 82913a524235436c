/** Signs, drawn as lines on a square of 16. They say nothing to who hears the page: a word stands beside each. */

const LINES = {
  alert: "M8 2.2 14.4 13.4H1.6ZM8 6.4v3.4M8 11.7v.1",
  arrowDown: "M8 3v10M4 9l4 4 4-4",
  arrowUp: "M8 13V3M4 7l4-4 4 4",
  ban: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M3.8 3.8l8.4 8.4",
  branch: "M4.5 2.5v11M4.5 5.5h4a3 3 0 0 1 3 3v2M9.5 8.5l2 2 2-2",
  check: "M3 8.5l3.4 3.4L13 4.6",
  chevronDown: "M4 6l4 4 4-4",
  chevronRight: "M6 4l4 4-4 4",
  chevronLeft: "M10 4L6 8l4 4",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 4.8V8l2.2 1.6",
  columns: "M2.5 3.5h11v9h-11ZM6.2 3.5v9M9.8 3.5v9",
  compare: "M2.5 12.5l3-5 3 3 5-7M2.5 6.5l3 2 3-5",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8Z",
  cross: "M4 4l8 8M12 4l-8 8",
  dot: "M8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6",
  dots: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  download: "M8 2.5v8M4.5 7.5L8 11l3.5-3.5M2.5 13.5h11",
  edit: "M3 13l.6-2.8L11 2.8l2.2 2.2-7.4 7.4Z",
  eye: "M1.6 8S4 3.8 8 3.8 14.4 8 14.4 8 12 12.2 8 12.2 1.6 8 1.6 8M8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6",
  file: "M4 2h5l3 3v9H4ZM9 2v3h3",
  filter: "M2.5 3.5h11L9.4 8.6v4L6.6 13.6v-5Z",
  flag: "M3.5 14V2.5M3.5 3h8.5l-2 2.8 2 2.7H3.5",
  folder: "M2 4h4l1.4 1.6H14v7.4H2Z",
  follow: "M8 2.5v7M4.8 6.6L8 9.8l3.2-3.2M3 13h10",
  info: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 7.4v3.4M8 5.1v.1",
  key: "M5.3 7.4a3.3 3.3 0 1 0 0 6.6 3.3 3.3 0 0 0 0-6.6M7.7 8.3l5.8-5.8M10.6 5.4l2.4 2.4",
  lock: "M3.5 7h9v6.5h-9ZM5.5 7V5a2.5 2.5 0 0 1 5 0v2",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  moon: "M12.9 9.8A5.4 5.4 0 0 1 6.2 3.1a5.4 5.4 0 1 0 6.7 6.7",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  people:
    "M6 7.6a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6M1.8 13c.2-2.4 1.9-3.7 4.2-3.7s4 1.3 4.2 3.7M10.6 3.4a2.2 2.2 0 0 1 0 4M12 9.7c1.3.5 2.1 1.6 2.2 3.3",
  play: "M5 3.2v9.6L12.5 8Z",
  plus: "M8 3v10M3 8h10",
  pool: "M2.5 2.5h4.6v4.6H2.5ZM8.9 2.5h4.6v4.6H8.9ZM2.5 8.9h4.6v4.6H2.5ZM8.9 8.9h4.6v4.6H8.9Z",
  resize: "M9.5 2.5h4v4M6.5 13.5h-4v-4M13.5 2.5l-4.6 4.6M2.5 13.5l4.6-4.6",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M10.3 10.3l3.4 3.4",
  settings: "M2.5 4.5h6M11.5 4.5h2M10 3v3M2.5 11.5h2M7.5 11.5h6M6 10v3",
  spin: "M8 2.2A5.8 5.8 0 1 1 2.2 8",
  star: "M8 2.2l1.8 3.7 4 .6-2.9 2.8.7 4L8 11.4l-3.6 1.9.7-4-2.9-2.8 4-.6Z",
  stop: "M4 4h8v8H4Z",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6M8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  system: "M2 3h12v8H2ZM5.5 13.5h5M8 11v2.5",
  trash: "M2.8 4.2h10.4M6 4.2V2.6h4v1.6M4 4.2l.6 9.2h6.8l.6-9.2",
  upload: "M8 10.5v-8M4.5 6L8 2.5 11.5 6M2.5 13.5h11",
  user: "M8 8a2.7 2.7 0 1 0 0-5.4A2.7 2.7 0 0 0 8 8M2.8 13.6c.3-2.7 2.4-4 5.2-4s4.9 1.3 5.2 4",
} as const;

export type IconName = keyof typeof LINES;

/** One sign. */
export function Icon({ name, size = 16, className }: { name: IconName; size?: number; className?: string }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth={name === "dots" ? 2.4 : 1.5}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      className={className}
    >
      <path d={LINES[name]} />
    </svg>
  );
}
