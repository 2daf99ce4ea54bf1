/**
 * The request fields that the public API, vLLM, llama-server, SGLang, TGI and Ollama know, as data:
 * which API defines a field, which part reads it, and which of its values change nothing. Engines
 * state which fields they support.
 */

import { isDeepStrictEqual } from 'node:util'

/** One known field of a request's body. */
export interface RequestField {
  /** The API that defines the field. */
  readonly of: 'openai' | 'vllm' | 'llama-server' | 'sglang' | 'tgi' | 'ollama' | 'tutti'
  /**
   * `server`: read by the HTTP server, so that engines need not know it. `engine`: supported only
   * if the engine says so. `nobody`: does not change the answer, so it may be ignored.
   */
  readonly reader: 'server' | 'engine' | 'nobody'
  /**
   * Values that change nothing, so that any engine accepts them; an empty list or object counts
   * too.
   */
  readonly neutral?: readonly unknown[]
  /** An empty list or object changes the answer as well. */
  readonly isSetByEmpty?: true
}

type Fields = Readonly<Record<string, RequestField>>

const server = (of: RequestField['of'], ...names: readonly string[]): Fields =>
  Object.fromEntries(names.map((name) => [name, { of, reader: 'server' }]))

const nobody = (of: RequestField['of'], ...names: readonly string[]): Fields =>
  Object.fromEntries(names.map((name) => [name, { of, reader: 'nobody' }]))

/** Fields that engines read, each with the values that change nothing. */
const engine = (
  of: RequestField['of'],
  fields: Readonly<Record<string, readonly unknown[]>>,
): Fields =>
  Object.fromEntries(
    Object.entries(fields).map(([name, neutral]) => [name, { of, reader: 'engine', neutral }]),
  )

/** Fields that engines read and whose every value has an effect, also an empty list or object. */
const engineAlways = (of: RequestField['of'], ...names: readonly string[]): Fields =>
  Object.fromEntries(names.map((name) => [name, { of, reader: 'engine', isSetByEmpty: true }]))

/** The response header that names the ignored fields of the request. */
export const ignoredHeader = 'x-tutti-ignored-fields'

/** The fields at the top level of a body, by name. */
export const requestFields: Fields = {
  ...server('openai', 'model', 'messages', 'prompt', 'n', 'stream', 'stream_options'),
  ...server('tutti', 'prompts', 'timeout', 'priority'),
  ...nobody('openai', 'user', 'metadata', 'store', 'service_tier', 'safety_identifier'),
  ...nobody('openai', 'prompt_cache_key', 'prompt_cache_retention'),
  ...nobody('vllm', 'request_id', 'cache_salt', 'stream_interval'),
  ...nobody('llama-server', 'cache_prompt', 'id_slot', 'n_cache_reuse'),
  ...nobody('ollama', 'keep_alive'),
  ...engine('openai', {
    max_tokens: [],
    max_completion_tokens: [],
    temperature: [],
    top_p: [],
    seed: [],
    stop: [],
    logprobs: [false],
    top_logprobs: [0],
    response_format: [],
    tools: [],
    tool_choice: ['none', 'auto'],
    echo: [false],
    frequency_penalty: [0],
    presence_penalty: [0],
    logit_bias: [],
    parallel_tool_calls: [true],
    reasoning_effort: [],
    verbosity: ['medium'],
    modalities: [['text']],
    audio: [],
    prediction: [],
    functions: [],
    function_call: ['none', 'auto'],
    best_of: [1],
    suffix: [''],
    reasoning: [],
    instructions: [''],
    max_output_tokens: [],
    max_tool_calls: [],
    // The JavaScript client sends `extra_body` as a field; the Python client sends its content
    // instead.
    extra_body: [],
  }),
  ...engineAlways('openai', 'web_search_options'),
  ...engine('vllm', {
    top_k: [0, -1],
    min_p: [0],
    repetition_penalty: [1],
    ignore_eos: [false],
    length_penalty: [1],
    use_beam_search: [false],
    min_tokens: [0],
    stop_token_ids: [],
    bad_words: [],
    include_stop_str_in_output: [false],
    skip_special_tokens: [true],
    spaces_between_special_tokens: [true],
    truncate_prompt_tokens: [],
    truncation_side: [],
    add_special_tokens: [],
    prompt_logprobs: [],
    prompt_embeds: [],
    add_generation_prompt: [true],
    continue_final_message: [false],
    chat_template: [],
    chat_template_kwargs: [],
    documents: [],
    mm_processor_kwargs: [],
    guided_json: [],
    guided_regex: [],
    guided_choice: [],
    guided_grammar: [],
    guided_decoding_backend: [],
    guided_whitespace_pattern: [],
    structured_outputs: [],
    structural_tag: [],
    logits_processors: [],
    return_tokens_as_token_ids: [false],
    return_token_ids: [false],
    include_reasoning: [true],
    thinking_token_budget: [],
    kv_transfer_params: [],
    ec_transfer_params: [],
    vllm_xargs: [],
    logprob_token_ids: [],
    flat_logprobs: [false],
    repetition_detection: [],
    return_prompt_text: [false],
    detokenize: [true],
    media_io_kwargs: [],
    watermarking: [false],
  }),
  ...engineAlways('vllm', 'allowed_token_ids'),
  ...engine('llama-server', {
    grammar: [''],
    json_schema: [],
    n_predict: [],
    n_cmpl: [1],
    n_keep: [0],
    n_discard: [0],
    n_indent: [0],
    n_probs: [0],
    min_keep: [0],
    mirostat: [0],
    mirostat_tau: [5],
    mirostat_eta: [0.1],
    dynatemp_range: [0],
    dynatemp_exponent: [1],
    typical_p: [1],
    xtc_probability: [0],
    xtc_threshold: [0.1],
    top_n_sigma: [-1],
    dry_multiplier: [0],
    dry_base: [1.75],
    dry_allowed_length: [2],
    dry_penalty_last_n: [-1],
    repeat_penalty: [],
    repeat_last_n: [64],
    adaptive_target: [-1],
    adaptive_decay: [0.9],
    penalize_nl: [false],
    tfs_z: [1],
    t_max_predict_ms: [0, -1],
    t_max_prompt_ms: [0, -1],
    image_data: [],
    lora: [],
    post_sampling_probs: [false],
    return_tokens: [false],
    return_progress: [false],
    timings_per_token: [false],
    response_fields: [],
    reasoning_format: ['auto', 'deepseek'],
    reasoning_in_content: [false],
    reasoning_control: [false],
    reasoning_budget: [-1],
    reasoning_budget_tokens: [-1],
    reasoning_budget_message: [''],
    reasoning_budget_start_tag: [''],
    reasoning_budget_end_tag: [''],
    reasoning_budget_end_tags: [],
    thinking_budget_tokens: [-1],
    thinking_forced_open: [false],
    parse_tool_calls: [true],
    chat_format: [],
    chat_parser: [''],
    generation_prompt: [''],
    grammar_lazy: [false],
    grammar_triggers: [],
    preserved_tokens: [],
    input_prefix: [''],
    input_suffix: [''],
    input_extra: [],
    system_prompt: [''],
    multimodal_data: [],
    verbose: [false],
  }),
  ...engineAlways('llama-server', 'samplers', 'dry_sequence_breakers'),
  ...engine('sglang', {
    regex: [],
    ebnf: [],
    no_stop_trim: [false],
    separate_reasoning: [true],
    stream_reasoning: [true],
    stop_regex: [''],
    min_new_tokens: [0],
    max_new_tokens: [],
    sampling_params: [],
    lora_path: [''],
    session_params: [],
    custom_logit_processor: [''],
    custom_params: [],
    input_ids: [],
    input_embeds: [],
    video_data: [],
    audio_data: [],
    use_audio_in_video: [false],
    return_logprob: [false],
    logprob_start_len: [-1],
    top_logprobs_num: [0],
    token_ids_logprob: [],
    return_hidden_states: [false],
    return_routed_experts: [false],
  }),
  ...engine('tgi', {
    inputs: [''],
    parameters: [],
    do_sample: [],
    watermark: [false],
    return_full_text: [false],
    details: [false],
    decoder_input_details: [false],
    top_n_tokens: [0],
    adapter_id: [''],
    tool_prompt: [''],
    guideline: [''],
  }),
  ...engine('ollama', {
    options: [],
    format: [''],
    think: [],
    images: [],
    template: [''],
    raw: [false],
    system: [''],
    context: [],
    // `false` is what happens anyway: too long a prompt is refused, an answer ends with the
    // context.
    truncate: [false],
    shift: [false],
    num_predict: [],
    num_ctx: [],
    num_keep: [0],
    penalize_newline: [false],
    _debug_render_only: [false],
  }),
}

/**
 * Names that other servers use for a field that has another name here; the first one that is read
 * counts.
 */
export const otherNames: Readonly<Record<string, readonly string[]>> = {
  n_predict: ['max_tokens'],
  num_predict: ['max_tokens'],
  max_new_tokens: ['max_tokens'],
  max_output_tokens: ['max_tokens'],
  n_cmpl: ['n'],
  n_probs: ['top_logprobs', 'logprobs'],
  top_logprobs_num: ['top_logprobs', 'logprobs'],
  return_logprob: ['logprobs'],
  regex: ['guided_regex'],
  ebnf: ['guided_grammar'],
  format: ['response_format'],
  functions: ['tools'],
  function_call: ['tool_choice'],
  think: ['reasoning_effort'],
  reasoning: ['reasoning_effort'],
  inputs: ['prompt', 'messages'],
  input_ids: ['prompt'],
}

const atTheTop = 'Its fields belong at the top of the body.'

/** Hints for fields that have no other name here. */
export const fieldHints: Readonly<Record<string, string>> = {
  extra_body: atTheTop,
  options: atTheTop,
  parameters: atTheTop,
  sampling_params: atTheTop,
  num_ctx: "The server's configuration has it: llm.max_model_len.",
}

/** Fields of a message besides those that every engine reads, by name. */
export const messageFields: Fields = {
  ...engine('openai', { refusal: [''], audio: [], function_call: [] }),
  ...nobody('openai', 'annotations'),
  // Most chat templates leave the names of participants out.
  ...nobody('openai', 'name'),
  // Chat templates ignore the reasoning of earlier answers unless they read these fields.
  ...nobody('vllm', 'reasoning_content', 'reasoning'),
  ...engine('ollama', { thinking: [''], images: [] }),
}

/** Fields of `POST /tokenize`. Embedded engines return the tokens of the text alone. */
export const tokenizeFields: Fields = {
  ...server('openai', 'model', 'prompt'),
  ...server('llama-server', 'content'),
  ...engine('llama-server', { add_special: [false], parse_special: [false], with_pieces: [false] }),
  ...engine('vllm', {
    add_special_tokens: [false],
    return_token_strs: [false],
    messages: [],
    tools: [],
    chat_template: [],
    chat_template_kwargs: [],
    add_generation_prompt: [],
    continue_final_message: [false],
    mm_processor_kwargs: [],
  }),
}

/** Fields of `stream_options`. */
export const streamOptionFields: Fields = {
  ...server('openai', 'include_usage'),
  ...nobody('openai', 'include_obfuscation'),
  ...engine('vllm', { continuous_usage_stats: [false] }),
}

/** Fields of `structured_outputs`, vLLM's later name of `guided_*`. */
export const structuredOutputFields: Fields = {
  ...server('vllm', 'json', 'regex', 'choice', 'grammar', 'json_object'),
  ...engine('vllm', {
    structural_tag: [''],
    whitespace_pattern: [''],
    disable_fallback: [false],
    disable_any_whitespace: [false],
    disable_additional_properties: [false],
  }),
}

/** The fields that `Sampling` and `GenerationInput` hold; every engine reads them. */
export const basicFields: ReadonlySet<string> = new Set([
  'max_tokens',
  'max_completion_tokens',
  'temperature',
  'top_p',
  'top_k',
  'min_p',
  'repetition_penalty',
  'repeat_penalty',
  'presence_penalty',
  'frequency_penalty',
  'logit_bias',
  'seed',
  'stop',
  'ignore_eos',
  'logprobs',
  'top_logprobs',
  'response_format',
  'tools',
  'tool_choice',
  'echo',
])

/** Whether a value of a field changes nothing. A field that is `null` counts as left out. */
export function isNeutral(field: RequestField, value: unknown): boolean {
  if (value === null) return true
  if (field.neutral?.some((one) => isDeepStrictEqual(one, value)) === true) return true
  if (typeof value !== 'object' || field.isSetByEmpty === true) return false
  return Object.keys(value).length === 0
}

/**
 * The same fields without neutral values: the defaults of the server behind the engine may differ.
 */
export const withoutNeutral = (fields: Fields): Fields =>
  Object.fromEntries(
    Object.entries(fields).map(([name, { of, reader }]) => [name, { of, reader }] as const),
  )
