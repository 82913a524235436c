/** A training definition in a list: its name, its command, and with how much it runs. */

import { type Definition, useFrameworks } from "@/pages/projects/project-data";
import { Button } from "@/parts/button";
import { Link } from "@/router/router";

interface RowProps {
  definition: Definition;
  onEdit?: () => void;
  onRemove?: () => void;
}

/** Return how many nodes a definition has, in words. */
export function sayNodes({ distributed, min_nodes, max_nodes }: Definition): string {
  if (distributed === "single") return "single, 1 node";
  if (distributed === "static") return `static, ${max_nodes} nodes`;
  return `elastic, ${min_nodes} to ${max_nodes} nodes`;
}

/** One row. */
export function DefinitionRow({ definition, onEdit, onRemove }: RowProps) {
  const framework = useFrameworks().data?.items.find((one) => one.name === definition.framework);
  return (
    <li className="definition-row">
      <div className="grow">
        <div className="row row-wrap">
          <Link to={`/definitions/${definition.id}`} className="cut definition-name" title={definition.name}>
            {definition.name}
          </Link>
          <span className="chip">{framework?.title ?? definition.framework}</span>
          <span className="chip">{sayNodes(definition)}</span>
        </div>
        <div className="mono soft cut" title={definition.command}>
          {definition.command}
        </div>
      </div>
      {onEdit && (
        <Button icon="edit" look="plain" isSmall aria-label={`Edit a copy of ${definition.name}`} onClick={onEdit} />
      )}
      {onRemove && (
        <Button icon="cross" look="plain" isSmall aria-label={`Remove ${definition.name}`} onClick={onRemove} />
      )}
    </li>
  );
}
