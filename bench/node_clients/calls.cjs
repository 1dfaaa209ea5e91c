// Make calls with an official client until standard input ends: node calls.cjs PROVIDER URL RETRIES AT_ONCE
// A line of standard output is one call that ended: "ok", or what was wrong. The number of a call says how it is to be
// answered, as in tests/support/llm_clients.py: in one piece, in a stream, or in a stream that says its usage.
"use strict";
const PROMPT = "x".repeat(400);
const MAXIMUM = 200;
const TIMEOUT = 600_000;
const [provider, url, retries, atOnce] = process.argv.slice(2);
const wantsRetries = retries === "true";
const few = wantsRetries ? {} : { maxRetries: 0 };

async function all(stream) {
  for await (const _ of stream);
}

function chat(client) {
  return async (number) => {
    const options = [{}, { stream: true }, { stream: true, stream_options: { include_usage: true } }][number % 3];
    const messages = [{ role: "user", content: PROMPT }];
    const said = await client.chat.completions.create({ model: "m", messages, max_tokens: MAXIMUM, ...options });
    if (options.stream) await all(said);
  };
}

const CLIENTS = {
  openai() {
    const { OpenAI } = require("openai");
    return chat(new OpenAI({ apiKey: "k", baseURL: `${url}/v1`, timeout: TIMEOUT, ...few }));
  },
  azure() {
    const { AzureOpenAI } = require("openai");
    return chat(new AzureOpenAI({ apiKey: "k", endpoint: url, apiVersion: "2024-10-21", timeout: TIMEOUT, ...few }));
  },
  anthropic() {
    const { Anthropic } = require("@anthropic-ai/sdk");
    const client = new Anthropic({ apiKey: "k", baseURL: url, timeout: TIMEOUT, ...few });
    return async (number) => {
      const stream = number % 3 > 0;
      const messages = [{ role: "user", content: PROMPT }];
      const said = await client.messages.create({ model: "m", max_tokens: MAXIMUM, messages, stream });
      if (stream) await all(said);
    };
  },
  google() {
    const { GoogleGenAI } = require("@google/genai");
    const httpOptions = { baseUrl: url, timeout: TIMEOUT, ...(wantsRetries ? { retryOptions: {} } : {}) };
    const models = new GoogleGenAI({ apiKey: "k", httpOptions }).models;
    const asked = { model: "m", contents: PROMPT, config: { maxOutputTokens: MAXIMUM } };
    return async (number) => {
      if (number % 3) await all(await models.generateContentStream(asked));
      else await models.generateContent(asked);
    };
  },
};

const call = CLIENTS[provider]();
let number = 0;

async function app() {
  for (;;) {
    try {
      await call(number++);
      console.log("ok");
    } catch (error) {
      console.log(String(error.message ?? error).replaceAll("\n", " "));
    }
  }
}

process.stdin.on("end", () => process.exit(0)).resume();
for (let each = 0; each < Number(atOnce); each++) app();
