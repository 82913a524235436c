import { expect, it } from "vitest";
import { cutName, tellApart } from "./names";

it("only jobs that share a name have the end of their id behind it", () => {
  const told = tellApart([
    { id: "j-aa0001", name: "digits" },
    { id: "j-ab0002", name: "digits" },
    { id: "j-ac0001", name: "digits" },
    { id: "j-ad0001", name: "tides" },
  ]);
  expect([...told.values()]).toEqual(["digits ·aa0001", "digits ·0002", "digits ·ac0001", "tides"]);
});

it("a name that is cut keeps what tells it apart", () => {
  expect(cutName("anna/digits ·0a4f", 17)).toBe("anna/digits ·0a4f");
  expect(cutName("anna/digits ·0a4f", 14)).toBe("anna/di… ·0a4f");
  expect(cutName("anna/digits-elastic", 9)).toBe("anna/dig…");
});
