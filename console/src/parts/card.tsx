/** A piece of a page with a heading. */

import { type ReactNode, useId } from "react";

interface CardProps {
  title: ReactNode;
  /** Stands beside the title, such as buttons. */
  tools?: ReactNode;
  /** No space around what is inside, as for tables. */
  isFlush?: boolean;
  className?: string;
  children: ReactNode;
}

/** A card; who hears the page can go to it by its title. */
export function Card({ title, tools, isFlush, className, children }: CardProps) {
  const heading = useId();
  return (
    <section className={["card", className].filter(Boolean).join(" ")} aria-labelledby={heading}>
      <div className="card-head">
        <h2 id={heading}>{title}</h2>
        {tools}
      </div>
      {isFlush ? children : <div className="card-body">{children}</div>}
    </section>
  );
}
