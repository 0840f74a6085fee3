/** Read JSON schemas as forms need them: without references, with null set apart, and of a value that has none. */

const MAX_STEPS = 20; // references and branches that lead to one schema

/**
 * Return a schema without references, and whether null fits as well. What stands beside a reference holds.
 * @param {any} schema @param {any} root the schema that references point into @returns {{schema: any, nullable: boolean}}
 */
export function plainSchema(schema, root) {
  let found = schema && typeof schema === "object" ? schema : {};
  let nullable = false;
  for (let step = 0; step < MAX_STEPS; step++) {
    const { $ref, allOf, anyOf, oneOf, type, ...rest } = found;
    const branches = anyOf ?? oneOf ?? (Array.isArray(type) ? type.map((one) => ({ ...rest, type: one })) : null);
    const others = branches?.filter((/** @type {any} */ branch) => branch?.type !== "null");
    nullable ||= Boolean(branches) && others.length < branches.length;
    if (typeof $ref === "string") found = { ...lookUp($ref, root), ...without(found, "$ref") };
    else if (allOf?.length === 1) found = { ...allOf[0], ...without(found, "allOf") };
    else if (others?.length === 1) found = { ...others[0], ...rest };
    else return { schema: branches ? { ...rest, anyOf: others } : found, nullable };
  }
  return { schema: {}, nullable };
}

/** @param {any} schema @param {string} name */
function without(schema, name) {
  return Object.fromEntries(Object.entries(schema).filter(([key]) => key !== name));
}

/** @param {string} reference @param {any} root @returns {any} */
function lookUp(reference, root) {
  const names = reference.replace(/^#\/?/, "").split("/").filter(Boolean).map((name) => decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~"));
  return names.reduce((found, name) => found?.[name], root) ?? {};
}

/** The values to choose from, with their names: MCP has several ways to list them. @param {any} schema @returns {{value: any, name: string}[] | null} */
export function choicesOf(schema) {
  const titled = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(titled) && titled.every((choice) => "const" in choice)) return titled.map((choice) => ({ value: choice.const, name: choice.title ?? String(choice.const) }));
  const values = schema.enum ?? ("const" in schema ? [schema.const] : schema.type === "boolean" ? [true, false] : null);
  const name = (/** @type {any} */ value) => (value === true ? "Yes" : value === false ? "No" : String(value));
  return Array.isArray(values) ? values.map((value, at) => ({ value, name: schema.enumNames?.[at] ?? name(value) })) : null;
}

/** Whether a value may be of a schema: by its type, its choices and the members that an object needs. @param {any} schema @param {any} value */
export function mayFit(schema, value) {
  const choices = choicesOf(schema);
  if (choices) return choices.some((choice) => choice.value === value);
  const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  if (schema.type === "integer") return Number.isInteger(value);
  if (schema.type && schema.type !== type) return false;
  if (type !== "object") return true;
  const fixed = Object.entries(schema.properties ?? {}).filter(([, member]) => "const" in /** @type {any} */ (member));
  return (schema.required ?? []).every((/** @type {string} */ name) => name in value) && fixed.every(([name, member]) => !(name in value) || value[name] === /** @type {any} */ (member).const);
}

/** Return a schema for values like this one. @param {any} value @returns {any} */
export function schemaOf(value) {
  if (Array.isArray(value)) return { type: "array", items: schemaOf(value[0] ?? null) };
  if (value === null) return {};
  if (typeof value !== "object") return { type: typeof value };
  const properties = Object.fromEntries(Object.entries(value).map(([name, member]) => [name, schemaOf(member)]));
  return { type: "object", properties, required: Object.keys(value) };
}
