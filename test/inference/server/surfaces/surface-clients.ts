/** The same requests in the form of each surface, and what a client reads from the replies. */

type Json = ReturnType<typeof JSON.parse>

export interface Turn {
  readonly role: 'user' | 'assistant' | 'tool'
  readonly text: string
  readonly reasoning?: string
  readonly calls?: readonly Call[]
  /** The call whose result the turn has. */
  readonly callId?: string
}

export interface Call {
  readonly id: string
  readonly name: string
  readonly arguments: string
}

/** A request, independent of any API. */
export interface Scenario {
  readonly system?: string
  readonly turns: readonly Turn[]
  readonly maxTokens?: number
  readonly temperature?: number
  readonly topP?: number
  readonly stop?: readonly string[]
  readonly tool?: { readonly name: string; readonly description: string; readonly schema: object }
  readonly toolChoice?: 'auto' | 'required' | 'none' | { readonly name: string }
  readonly schema?: object
}

/** What a client gets, independent of any API. */
export interface Reading {
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly Call[]
  readonly finish: string
  readonly tokens: readonly [input: number, output: number]
}

export interface SurfaceClient {
  readonly path: string
  /** The fields that ask for a stream, with the tokens in it. */
  readonly streamFields: object
  toBody(scenario: Scenario): Record<string, unknown>
  readWhole(body: Json): Reading
  /** Reads the data of the events, or the lines, of a stream. */
  readStream(parts: readonly Json[]): Reading
  /** Returns the message of an error. */
  readError(body: Json): unknown
}

const toParsed = (json: string): Json => JSON.parse(json)

const chat: SurfaceClient = {
  path: '/v1/chat/completions',
  streamFields: { stream: true, stream_options: { include_usage: true } },
  toBody({ system, turns, maxTokens, temperature, topP, stop, tool, toolChoice, schema }) {
    return {
      model: 'tiny',
      messages: [
        ...(system === undefined ? [] : [{ role: 'system', content: system }]),
        ...turns.map(({ role, text, reasoning, calls, callId }) => ({
          role,
          content: text,
          reasoning_content: reasoning,
          tool_call_id: callId,
          tool_calls: calls?.map(({ id, name, arguments: given }) => ({
            id,
            type: 'function',
            function: { name, arguments: given },
          })),
        })),
      ],
      max_tokens: maxTokens,
      temperature,
      top_p: topP,
      stop,
      tools: tool && [
        {
          type: 'function',
          function: { name: tool.name, description: tool.description, parameters: tool.schema },
        },
      ],
      tool_choice:
        typeof toolChoice === 'object' ? { type: 'function', function: toolChoice } : toolChoice,
      response_format: schema && { type: 'json_schema', json_schema: { name: 'a', schema } },
    }
  },
  readWhole: ({ choices, usage }) => ({
    text: choices[0].message.content ?? '',
    reasoning: choices[0].message.reasoning_content ?? '',
    calls: (choices[0].message.tool_calls ?? []).map(toCall),
    finish: choices[0].finish_reason,
    tokens: [usage.prompt_tokens, usage.completion_tokens],
  }),
  readStream(parts) {
    const deltas = parts.flatMap(({ choices }) => choices.map((one: Json) => one.delta))
    const join = (name: string): string => deltas.map((delta) => delta[name] ?? '').join('')
    const calls: Call[] = []
    for (const { index, id, function: piece } of deltas.flatMap((one) => one.tool_calls ?? [])) {
      const begun = calls[index] ?? { id, name: piece.name, arguments: '' }
      calls[index] = { ...begun, arguments: begun.arguments + piece.arguments }
    }
    return {
      text: join('content'),
      reasoning: join('reasoning_content'),
      calls,
      finish: parts.flatMap(({ choices }) => choices).at(-1).finish_reason,
      tokens: [parts.at(-1).usage.prompt_tokens, parts.at(-1).usage.completion_tokens],
    }
  },
  readError: ({ error }) => error.message,
}

const toCall = ({ id, function: { name, arguments: given } }: Json): Call => ({
  id,
  name,
  arguments: given,
})

const stopReasons: Readonly<Record<string, string>> = {
  end_turn: 'stop',
  max_tokens: 'length',
  tool_use: 'tool_calls',
  refusal: 'content_filter',
}

const anthropic: SurfaceClient = {
  path: '/v1/messages',
  streamFields: { stream: true },
  toBody({ system, turns, maxTokens, temperature, topP, stop, tool, toolChoice, schema }) {
    const choice = typeof toolChoice === 'object' ? 'tool' : toolChoice
    return {
      model: 'tiny',
      system,
      messages: turns.map(({ role, text, reasoning, calls, callId }) => {
        if (role === 'tool') {
          const result = { type: 'tool_result', tool_use_id: callId, content: text }
          return { role: 'user', content: [result] }
        }
        const content = [
          ...(reasoning === undefined
            ? []
            : [{ type: 'thinking', thinking: reasoning, signature: '' }]),
          ...(text === '' ? [] : [{ type: 'text', text }]),
          ...(calls ?? []).map(({ id, name, arguments: given }) => {
            return { type: 'tool_use', id, name, input: toParsed(given) }
          }),
        ]
        return { role, content: role === 'user' ? text : content }
      }),
      max_tokens: maxTokens,
      temperature,
      top_p: topP,
      stop_sequences: stop,
      tools: tool && [
        { name: tool.name, description: tool.description, input_schema: tool.schema },
      ],
      tool_choice: choice && {
        type: choice === 'required' ? 'any' : choice,
        ...(typeof toolChoice === 'object' ? toolChoice : {}),
      },
      output_config: schema && { format: { type: 'json_schema', schema } },
    }
  },
  readWhole: ({ content, usage, stop_reason: reason }) => ({
    text: content.map((block: Json) => block.text ?? '').join(''),
    reasoning: content.map((block: Json) => block.thinking ?? '').join(''),
    calls: content
      .filter(({ type }: Json) => type === 'tool_use')
      .map(({ id, name, input }: Json) => ({ id, name, arguments: JSON.stringify(input) })),
    finish: stopReasons[reason] ?? reason,
    tokens: [usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens],
  }),
  readStream(parts) {
    const blocks: Json[] = []
    for (const { type, index, content_block: block, delta } of parts) {
      if (type === 'content_block_start') blocks[index] = { ...block, json: '' }
      if (type !== 'content_block_delta') continue
      const { text = '', thinking = '', partial_json: json = '' } = delta
      if ('text' in delta) blocks[index].text += text
      if ('thinking' in delta) blocks[index].thinking += thinking
      blocks[index].json += json
    }
    const last = parts.find(({ type }) => type === 'message_delta')
    const content = blocks.map(({ json, ...block }) =>
      json === '' ? block : { ...block, input: toParsed(json) },
    )
    expectOrder(parts.map(({ type }) => type))
    return this.readWhole({ content, usage: last.usage, stop_reason: last.delta.stop_reason })
  },
  readError: ({ type, error }) => (type === 'error' ? error.message : undefined),
}

/** A stream has its first and last event once, and each block ends before the next one begins. */
function expectOrder(types: readonly string[]): void {
  const text = types.join(' ').replaceAll('content_block_', '')
  const order = /^message_start(?: start(?: delta)* stop)* message_delta message_stop$/
  if (!order.test(text)) throw new Error(`unexpected order of events: ${text}`)
}

const responses: SurfaceClient = {
  path: '/v1/responses',
  streamFields: { stream: true },
  toBody({ system, turns, maxTokens, temperature, topP, stop, tool, toolChoice, schema }) {
    return {
      model: 'tiny',
      instructions: system,
      input: turns.flatMap(({ role, text, reasoning, calls = [], callId }): object[] => {
        if (role === 'tool')
          return [{ type: 'function_call_output', call_id: callId, output: text }]
        const summary = [{ type: 'summary_text', text: reasoning }]
        return [
          ...(reasoning === undefined ? [] : [{ type: 'reasoning', id: 'rs_1', summary }]),
          ...(text === '' ? [] : [{ role, content: [{ type: 'input_text', text }] }]),
          ...calls.map(({ id, ...call }) => ({ type: 'function_call', call_id: id, ...call })),
        ]
      }),
      max_output_tokens: maxTokens,
      temperature,
      top_p: topP,
      stop,
      tools: tool && [
        {
          type: 'function',
          name: tool.name,
          description: tool.description,
          parameters: tool.schema,
        },
      ],
      tool_choice:
        typeof toolChoice === 'object' ? { type: 'function', ...toolChoice } : toolChoice,
      text: schema && { format: { type: 'json_schema', name: 'a', schema } },
    }
  },
  readWhole({ status, incomplete_details: details, output, usage }) {
    const calls = output.filter(({ type }: Json) => type === 'function_call')
    const ends: Readonly<Record<string, string>> = {
      max_output_tokens: 'length',
      content_filter: 'content_filter',
    }
    const end = calls.length > 0 ? 'tool_calls' : 'stop'
    return {
      text: output
        .flatMap(({ type, content }: Json) => (type === 'message' ? content : []))
        .map(({ text }: Json) => text)
        .join(''),
      reasoning: output
        .flatMap(({ summary = [] }: Json) => summary)
        .map(({ text }: Json) => text)
        .join(''),
      calls: calls.map(({ call_id: id, name, arguments: given }: Json) => {
        return { id, name, arguments: given }
      }),
      finish: status === 'completed' ? end : (ends[details.reason] ?? details.reason),
      tokens: [usage.input_tokens, usage.output_tokens],
    }
  },
  readStream(parts) {
    const last = parts.at(-1)
    const numbers = parts.map(({ sequence_number: number }) => number)
    const join = (type: string): string =>
      parts.flatMap((part) => (part.type === type ? [part.delta] : [])).join('')
    const reading = this.readWhole(last.response)
    const pieces = [
      join('response.output_text.delta'),
      join('response.reasoning_summary_text.delta'),
      join('response.function_call_arguments.delta'),
    ]
    const whole = [reading.text, reading.reasoning]
    whole.push(reading.calls.map((call) => call.arguments).join(''))
    const isInOrder = numbers.every((number, at) => number === at)
    if (!isInOrder || pieces.join('|') !== whole.join('|')) throw new Error('events are missing')
    const items = parts.flatMap(({ type, item }) =>
      type === 'response.output_item.done' ? [item] : [],
    )
    return this.readWhole({ ...last.response, output: items })
  },
  readError: (body) => body.error?.message ?? body.message,
}

const ollama: SurfaceClient = {
  path: '/api/chat',
  streamFields: { stream: true },
  toBody({ system, turns, maxTokens, temperature, topP, stop, tool, toolChoice, schema }) {
    return {
      model: 'tiny:latest',
      stream: false,
      messages: [
        ...(system === undefined ? [] : [{ role: 'system', content: system }]),
        ...turns.map(({ role, text, reasoning, calls, callId }) => ({
          role,
          content: text,
          thinking: reasoning,
          tool_call_id: callId,
          tool_calls: calls?.map(({ id, name, arguments: given }) => {
            return { id, function: { name, arguments: toParsed(given) } }
          }),
        })),
      ],
      options: { num_predict: maxTokens, temperature, top_p: topP, stop, num_ctx: 4096 },
      tools: tool && [
        {
          type: 'function',
          function: { name: tool.name, description: tool.description, parameters: tool.schema },
        },
      ],
      // Ollama has no such field, and tutti reads it as in a chat request.
      tool_choice:
        typeof toolChoice === 'object' ? { type: 'function', function: toolChoice } : toolChoice,
      format: schema,
    }
  },
  readWhole: ({ message, done, done_reason: reason, ...counts }) => ({
    text: message.content,
    reasoning: message.thinking ?? '',
    calls: (message.tool_calls ?? []).map(({ id, function: called }: Json) => {
      return { id, name: called.name, arguments: JSON.stringify(called.arguments) }
    }),
    finish: message.tool_calls !== undefined && done ? 'tool_calls' : reason,
    tokens: [counts.prompt_eval_count, counts.eval_count],
  }),
  readStream(parts) {
    const join = (name: string): string => parts.map(({ message }) => message[name] ?? '').join('')
    const calls = parts.flatMap(({ message }) => message.tool_calls ?? [])
    if (parts.some(({ done }, at) => done !== (at === parts.length - 1))) {
      throw new Error('only the last line is done')
    }
    const message = { content: join('content'), thinking: join('thinking') }
    const tools = calls.length === 0 ? {} : { tool_calls: calls }
    return this.readWhole({ ...parts.at(-1), message: { ...message, ...tools } })
  },
  readError: ({ error }) => error,
}

/** Returns the parsed events or lines of a stream. */
export const toParts = (text: string): Json[] =>
  text
    .split('\n')
    .map((line) => line.replace(/^data: /, ''))
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line))

export const surfaceClients: Readonly<Record<string, SurfaceClient>> = {
  chat,
  responses,
  anthropic,
  ollama,
}
