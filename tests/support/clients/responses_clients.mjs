// Ask a server for responses by OpenAI's SDK for JavaScript and the AI SDK, as their users would; print JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const { url, folder } = JSON.parse(process.argv[2]);
const baseURL = `${url}/v1`;
const City = z.object({ name: z.string(), inhabitants: z.number().int() });
const picture = "iVBORw0KGgo=";

async function said(call) {
  try {
    return `nothing: ${JSON.stringify(await call())}`;
  } catch (error) {
    return `${error.constructor.name}: ${error.message}`;
  }
}

async function throughOpenAi() {
  const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  const model = "obedient";
  const pick = { type: "function", name: "pick", strict: false, parameters: { type: "object", properties: {} } };
  const create = (input, more = {}) => client.responses.create({ model, input, ...more });
  const stream = client.responses.stream({ model, input: "words 3 0.01" });
  let deltas = "";
  stream.on("response.output_text.delta", (event) => (deltas += event.delta));
  const streamed = await stream.finalResponse();
  const called = await create("call pick", { tools: [pick] });
  const output = { type: "function_call_output", call_id: called.output[0].call_id, output: "red" };
  const waiting = await create(`hold ${folder}/never`, { background: true });
  let begun = waiting;
  while (!begun.output_text) begun = await client.responses.retrieve(waiting.id);
  const cancelled = await client.responses.cancel(waiting.id);
  const background = await create("later", { background: true });
  let found = background;
  while (["queued", "in_progress"].includes(found.status)) found = await client.responses.retrieve(background.id);
  const image = { type: "input_image", detail: "auto", image_url: `data:image/png;base64,${picture}` };
  const text = { format: zodTextFormat(City, "city") };
  const forced = await create("Rome", { tools: [pick], tool_choice: { type: "function", name: "pick" } });
  const resumed = [];
  for await (const event of await client.responses.retrieve(streamed.id, { stream: true, starting_after: 2 }))
    resumed.push(event.sequence_number);
  return {
    chat: (await create("Rome")).output_text,
    stream: [deltas, streamed.output_text, streamed.status],
    resumed: resumed[0],
    tools: (await create([output], { previous_response_id: called.id, tools: [pick] })).output_text,
    resent: (await create([{ role: "user", content: "call pick" }, ...called.output, output])).output_text,
    forced: forced.output[0].name,
    structured: (await client.responses.parse({ model, input: "Rome", text })).output_parsed,
    pictures: (await create([{ role: "user", content: [{ type: "input_text", text: "see" }, image] }])).output_text,
    background: [found.status, found.output_text],
    cancelled: cancelled.status,
    deleted: (await client.responses.delete(found.id), await said(() => client.responses.retrieve(found.id))),
    error: await said(() => create("fail")),
    streamError: await said(async () => {
      for await (const _ of await create("fail", { stream: true }));
    }),
    refused: await said(() => create("Rome", { tools: [{ type: "web_search" }] })),
  };
}

async function throughAiSdk() {
  const model = createOpenAI({ baseURL, apiKey: "none" })("obedient"); // of the responses API, by default
  const pick = tool({ description: "Pick.", inputSchema: z.object({ text: z.string() }), execute: async () => "red" });
  const user = (content) => ({ role: "user", content });
  const streamed = streamText({ model, prompt: "words 3 0.01" });
  const called = await generateText({ model, prompt: "call pick", tools: { pick }, stopWhen: stepCountIs(3) });
  const resent = [user("call pick"), ...called.response.messages, user("recite")];
  const own = await generateText({ model, prompt: "note" });
  const approval = async (prompt, store, stream) => {
    const providerOptions = { openai: { store } };
    const asked = await (stream ? streamText : generateText)({ model, prompt, providerOptions });
    const [content, response] = [await asked.content, await asked.response];
    const request = content.find((part) => part.type === "tool-approval-request");
    const answer = { type: "tool-approval-response", approvalId: request.approvalId, approved: true, providerExecuted: true };
    const messages = [user(prompt), ...response.messages, { role: "tool", content: [answer] }];
    const approved = await generateText({ model, messages, providerOptions });
    return [content.map((part) => part.type), approved.toolResults.map((result) => result.output.output), approved.text];
  };
  const image = { type: "image", image: Buffer.from(picture, "base64"), mediaType: "image/png" };
  const toolChoice = { type: "tool", toolName: "pick" };
  const previous = { openai: { previousResponseId: own.providerMetadata.openai.responseId } };
  let streamError = "";
  const failing = streamText({ model, prompt: "fail", maxRetries: 0, onError: ({ error }) => (streamError = error) });
  for await (const _ of failing.textStream);
  return {
    chat: (await generateText({ model, prompt: "Rome" })).text,
    stream: await streamed.text,
    tools: called.text,
    resent: JSON.parse((await generateText({ model, messages: resent, tools: { pick } })).text).map(([role]) => role),
    forced: (await generateText({ model, prompt: "Rome", tools: { pick }, toolChoice })).toolCalls[0].input,
    structured: (await generateObject({ model, schema: City, prompt: "Rome" })).object,
    pictures: (await generateText({ model, messages: [user([{ type: "text", text: "see" }, image])] })).text,
    ownTools: own.toolResults.map((result) => [result.toolName, result.output.output]),
    approvals: [
      await approval("ask", true, false),
      await approval("call guarded", false, false),
      await approval("call guarded", true, true),
      await approval("call pay", false, true),
    ],
    continued: JSON.parse(
      (await generateText({ model, prompt: "recite", providerOptions: previous })).text,
    ).map(([role]) => role),
    error: await said(() => generateText({ model, prompt: "fail", maxRetries: 0 })),
    streamError: `${APICallError.isInstance(streamError)} ${streamError.message ?? JSON.stringify(streamError)}`,
  };
}

console.log(JSON.stringify({ openai: await throughOpenAi(), ai: await throughAiSdk() }));
