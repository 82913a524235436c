import { expect, it } from "vitest";
import { cutName, tellApart } from "./names";

it("the end of the id follows only names that several jobs share", () => {
  const told = tellApart([
    { id: "j-aa0001", name: "digits" },
    { id: "j-ab0002", name: "digits" },
    { id: "j-ac0001", name: "digits" },
    { id: "j-ad0001", name: "tides" },
  ]);
  expect([...told.values()]).toEqual(["digits ·aa0001", "digits ·0002", "digits ·ac0001", "tides"]);
});

it("a name that is cut keeps the end that differs", () => {
  expect(cutName("anna/digits ·0a4f", 17)).toBe("anna/digits ·0a4f");
  expect(cutName("anna/digits ·0a4f", 14)).toBe("anna/di… ·0a4f");
  expect(cutName("anna/digits-elastic", 9)).toBe("anna/dig…");
});
