/** How strongly the lines of charts are smoothed. */

const SMOOTHINGS = [0, 0.6, 0.9, 0.97] as const;

/** A choice of the weight for `smooth`; 0: off. */
export function SmoothingChoice({ weight, onWeight }: { weight: number; onWeight: (weight: number) => void }) {
  return (
    <label className="row small">
      <span className="soft">Smoothing</span>
      <select
        className="input input-small charts-smooth"
        value={weight}
        onChange={(event) => onWeight(Number(event.currentTarget.value))}
      >
        {SMOOTHINGS.map((each) => (
          <option key={each} value={each}>
            {each === 0 ? "off" : each}
          </option>
        ))}
      </select>
    </label>
  );
}
