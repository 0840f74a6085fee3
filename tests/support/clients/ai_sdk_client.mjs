// Ask a server by the AI SDK and by OpenAI's SDK for JavaScript, as their users would; print what came back as JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const { url } = JSON.parse(process.argv[2]);
const City = z.object({ name: z.string(), inhabitants: z.number().int() });
const prompt = "Rome";
const picture = "iVBORw0KGgo=";

async function said(call) {
  try {
    return `nothing: ${JSON.stringify(await call())}`;
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}

const kept = () => ({ "X-Session-Id": `s-${crypto.randomUUID()}` });

async function throughAiSdk(model, make) {
  const headers = kept();
  await generateText({ model: make(headers), prompt: "remember me" });
  const pick = tool({ description: "Pick.", inputSchema: z.object({ text: z.string() }), execute: async () => "red" });
  const city = tool({ description: "A city.", inputSchema: City });
  const partial = streamObject({ model, schema: City, prompt });
  const snapshots = [];
  for await (const part of partial.partialObjectStream) snapshots.push(part);
  const streamed = streamText({ model, prompt: "words 3 0" });
  const loop = await generateText({ model, tools: { pick }, prompt: "call pick", stopWhen: stepCountIs(3) });
  const forced = await generateText({ model, tools: { city }, toolChoice: { type: "tool", toolName: "city" }, prompt });
  const required = await generateText({ model, tools: { city }, toolChoice: "required", prompt });
  const image = { type: "image", image: Buffer.from(picture, "base64"), mediaType: "image/png" };
  const seen = { role: "user", content: [{ type: "text", text: "see" }, image] };
  return {
    chat: (await generateText({ model, prompt })).text,
    stream: await streamed.text,
    tools: loop.text,
    structured: (await generateObject({ model, schema: City, prompt })).object,
    output: (await generateText({ model, prompt, output: Output.object({ schema: City }) })).output,
    streamed: await partial.object,
    snapshots: snapshots.length,
    forced: forced.toolCalls[0].input,
    required: required.toolCalls[0].input,
    pictures: (await generateText({ model, messages: [seen] })).text,
    resume: (await generateText({ model: make(headers), prompt: "recite" })).text,
    error: await said(async () => {
      try {
        return await generateText({ model, prompt, frequencyPenalty: 1, maxRetries: 0 });
      } catch (error) {
        if (!APICallError.isInstance(error)) throw error;
        throw new Error(`${error.statusCode} ${error.message}`);
      }
    }),
  };
}

async function throughOpenAi() {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const keeping = client.withOptions({ defaultHeaders: kept() });
  const tell = async (content) => (await keeping.chat.completions.create({ model: "obedient", messages: [{ role: "user", content }] })).choices[0].message.content;
  await tell("remember me");
  const ask = { model: "obedient", messages: [{ role: "user", content: prompt }] };
  const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
  const tools = [{ type: "function", function: { name: "city", parameters: schema } }];
  const parsed = await client.chat.completions.parse({ ...ask, response_format: zodResponseFormat(City, "city") });
  const stream = client.chat.completions.stream({ ...ask, response_format: zodResponseFormat(City, "city") });
  const forced = await client.chat.completions.create({ ...ask, tools, tool_choice: "required" });
  const words = client.chat.completions.stream({ ...ask, messages: [{ role: "user", content: "words 3 0" }] });
  const image = { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } };
  const seen = { role: "user", content: [{ type: "text", text: "see" }, image] };
  const question = { role: "user", content: "call pick" };
  const picked = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
  const picks = [{ type: "function", function: { name: "pick", parameters: picked } }];
  const call = (await client.chat.completions.create({ ...ask, messages: [question], tools: picks })).choices[0].message;
  const result = { role: "tool", tool_call_id: call.tool_calls[0].id, content: "red" };
  const after = await client.chat.completions.create({ ...ask, messages: [question, call, result], tools: picks });
  return {
    chat: (await client.chat.completions.create(ask)).choices[0].message.content,
    stream: await words.finalContent(),
    resume: await tell("recite"),
    tools: after.choices[0].message.content,
    pictures: (await client.chat.completions.create({ ...ask, messages: [seen] })).choices[0].message.content,
    structured: parsed.choices[0].message.parsed,
    streamed: (await stream.finalChatCompletion()).choices[0].message.parsed,
    forced: JSON.parse(forced.choices[0].message.tool_calls[0].function.arguments),
    error: await said(async () => {
      try {
        return await client.chat.completions.create({ ...ask, n: 2 });
      } catch (error) {
        if (!(error instanceof OpenAI.BadRequestError)) throw error;
        throw new Error(`${error.status} ${error.param} ${error.message}`);
      }
    }),
  };
}

const about = { name: "lango", baseURL: `${url}/v1`, apiKey: "none" };
const compatible = (headers) => createOpenAICompatible({ ...about, headers, supportsStructuredOutputs: true })("obedient");
const chat = (headers) => createOpenAI({ ...about, headers }).chat("obedient");
console.log(
  JSON.stringify({
    compatible: await throughAiSdk(compatible({}), compatible),
    chat: await throughAiSdk(chat({}), chat),
    openai: await throughOpenAi(),
  }),
);
