/** Holds a mistake of one page, so that the others stay usable. */

import { Component, type ReactNode } from "react";
import { ErrorState } from "./states";

interface Held {
  error: unknown;
}

/** Shows what went wrong in the place of a page that cannot be drawn. */
export class Boundary extends Component<{ children: ReactNode }, Held> {
  override state: Held = { error: null };

  static getDerivedStateFromError(error: unknown): Held {
    return { error };
  }

  override render(): ReactNode {
    if (this.state.error === null) return this.props.children;
    return <ErrorState error={this.state.error} what="this page" retry={() => this.setState({ error: null })} />;
  }
}
