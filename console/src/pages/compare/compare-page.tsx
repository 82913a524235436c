import type { PageProps } from "@/routes";

/** Stands here until the page is built. */
export default function ComparePage({ names }: PageProps) {
  return <div className="page">{JSON.stringify(names)}</div>;
}
