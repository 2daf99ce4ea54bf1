/** The known request fields of the public API, vLLM, llama-server, SGLang, TGI and Ollama. */

import { isDeepStrictEqual } from 'node:util'

export interface RequestField {
  /** What reads the field: the HTTP server, an engine that supports the field, or nothing. */
  readonly reader: 'server' | 'engine' | 'nobody'
  /** Values without an effect. Any engine accepts them, like empty lists and objects. */
  readonly neutralValues?: readonly unknown[]
  /** Set if an empty list or object has an effect and is therefore not neutral. */
  readonly hasEffectIfEmpty?: true
}

type Fields = Readonly<Record<string, RequestField>>

const splitNames = (text: string): string[] => text.trim().split(/\s+/)

const defineFields = (names: string, field: RequestField): Fields =>
  Object.fromEntries(splitNames(names).map((name) => [name, field]))

const forServer = (names: string): Fields => defineFields(names, { reader: 'server' })
const forNobody = (names: string): Fields => defineFields(names, { reader: 'nobody' })
const forEngine = (neutralValues: readonly unknown[], names: string): Fields =>
  defineFields(names, { reader: 'engine', neutralValues })

export const ignoredFieldsHeader = 'x-tutti-ignored-fields'

export const requestFields: Fields = {
  ...forServer('model messages prompt n stream stream_options prompts timeout priority'),
  ...forNobody('user metadata store service_tier safety_identifier prompt_cache_key'),
  ...forNobody('prompt_cache_retention request_id cache_salt stream_interval cache_prompt id_slot'),
  // Some engines read `reasoning_effort` if the model has levels of reasoning effort.
  ...forNobody('n_cache_reuse keep_alive reasoning_effort'),
  // The public API's JavaScript client sends `extra_body` as a field.
  ...forEngine(
    [],
    `
    max_tokens max_completion_tokens temperature top_p seed stop response_format tools
    logit_bias audio prediction functions reasoning max_output_tokens
    max_tool_calls extra_body stop_token_ids bad_words truncate_prompt_tokens truncation_side
    add_special_tokens prompt_logprobs prompt_embeds chat_template chat_template_kwargs
    documents mm_processor_kwargs guided_json guided_regex guided_choice guided_grammar
    guided_decoding_backend guided_whitespace_pattern structured_outputs structural_tag
    logits_processors thinking_token_budget kv_transfer_params ec_transfer_params vllm_xargs
    logprob_token_ids repetition_detection media_io_kwargs json_schema n_predict repeat_penalty
    image_data lora response_fields reasoning_budget_end_tags chat_format grammar_triggers
    preserved_tokens input_extra multimodal_data regex ebnf max_new_tokens sampling_params
    session_params custom_params input_ids input_embeds video_data audio_data token_ids_logprob
    parameters do_sample options think images context num_predict num_ctx`,
  ),
  ...forEngine(
    [false],
    `
    logprobs echo ignore_eos use_beam_search include_stop_str_in_output continue_final_message
    return_tokens_as_token_ids return_token_ids flat_logprobs return_prompt_text watermarking
    penalize_nl post_sampling_probs return_tokens return_progress timings_per_token
    reasoning_in_content reasoning_control thinking_forced_open grammar_lazy verbose
    no_stop_trim use_audio_in_video return_logprob return_hidden_states return_routed_experts
    watermark return_full_text details decoder_input_details raw truncate shift penalize_newline
    _debug_render_only`,
  ),
  ...forEngine(
    [true],
    `
    parallel_tool_calls skip_special_tokens spaces_between_special_tokens add_generation_prompt
    include_reasoning detokenize parse_tool_calls separate_reasoning stream_reasoning`,
  ),
  ...forEngine(
    [''],
    `
    suffix instructions grammar reasoning_budget_message reasoning_budget_start_tag
    reasoning_budget_end_tag chat_parser generation_prompt input_prefix input_suffix
    system_prompt stop_regex lora_path custom_logit_processor inputs adapter_id tool_prompt
    guideline format template system`,
  ),
  ...forEngine(
    [0],
    `
    top_logprobs frequency_penalty presence_penalty min_p min_tokens n_keep n_discard n_indent
    n_probs min_keep mirostat dynatemp_range xtc_probability dry_multiplier min_new_tokens
    top_logprobs_num top_n_tokens num_keep`,
  ),
  ...forEngine(
    [1],
    `
    best_of repetition_penalty length_penalty n_cmpl dynatemp_exponent typical_p tfs_z`,
  ),
  ...forEngine(
    [-1],
    `
    top_n_sigma dry_penalty_last_n adaptive_target reasoning_budget reasoning_budget_tokens
    thinking_budget_tokens logprob_start_len`,
  ),
  ...forEngine([0, -1], 'top_k t_max_predict_ms t_max_prompt_ms'),
  ...forEngine([0.1], 'mirostat_eta xtc_threshold'),
  ...forEngine(['none', 'auto'], 'tool_choice function_call'),
  ...defineFields('web_search_options allowed_token_ids samplers dry_sequence_breakers', {
    reader: 'engine',
    hasEffectIfEmpty: true,
  }),
  ...forEngine(['medium'], 'verbosity'),
  ...forEngine([['text']], 'modalities'),
  ...forEngine(['auto', 'deepseek'], 'reasoning_format'),
  ...forEngine([5], 'mirostat_tau'),
  ...forEngine([1.75], 'dry_base'),
  ...forEngine([2], 'dry_allowed_length'),
  ...forEngine([64], 'repeat_last_n'),
  ...forEngine([0.9], 'adaptive_decay'),
}

/** Equivalents of names that other servers use. Errors suggest the first supported one. */
export const equivalentFields: Readonly<Record<string, readonly string[]>> = {
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

const topLevelHint = 'Its fields belong at the top of the body.'

/** Hints for fields of other servers that have no equivalent name here. */
export const fieldHints: Readonly<Record<string, string>> = {
  extra_body: topLevelHint,
  options: topLevelHint,
  parameters: topLevelHint,
  sampling_params: topLevelHint,
  num_ctx: "The server's configuration has it: llm.max_model_len.",
}

export const messageFields: Fields = {
  ...forEngine([''], 'refusal thinking'),
  ...forEngine([], 'audio function_call images'),
  // Most chat templates leave out the names of participants and earlier reasoning.
  ...forNobody('annotations name reasoning_content reasoning'),
}

/** Fields of `POST /tokenize`. Embedded engines only tokenize the text and support no options. */
export const tokenizeFields: Fields = {
  ...forServer('model prompt content'),
  ...forEngine([false], 'add_special parse_special with_pieces add_special_tokens'),
  ...forEngine([false], 'return_token_strs continue_final_message'),
  ...forEngine([], 'messages tools chat_template chat_template_kwargs add_generation_prompt'),
  ...forEngine([], 'mm_processor_kwargs'),
}

export const streamOptionFields: Fields = {
  ...forServer('include_usage'),
  ...forNobody('include_obfuscation'),
  ...forEngine([false], 'continuous_usage_stats'),
}

/** Fields of `structured_outputs`, which replaces the `guided_*` fields in newer vLLM versions. */
export const structuredOutputFields: Fields = {
  ...forServer('json regex choice grammar json_object'),
  ...forEngine([''], 'structural_tag whitespace_pattern'),
  ...forEngine([false], 'disable_fallback disable_any_whitespace disable_additional_properties'),
}

/** The fields that `Sampling` and `GenerationInput` represent. Every engine supports them. */
export const basicFields: ReadonlySet<string> = new Set(
  splitNames(`
    max_tokens max_completion_tokens temperature top_p top_k min_p seed stop repetition_penalty
    repeat_penalty presence_penalty frequency_penalty logit_bias ignore_eos logprobs top_logprobs
    response_format tools tool_choice echo best_of`),
)

/** Whether a value has no effect. `null` is treated like a missing field. */
export function hasNoEffect(field: RequestField, value: unknown): boolean {
  if (value === null) return true
  if (field.neutralValues?.some((one) => isDeepStrictEqual(one, value)) === true) return true
  if (typeof value !== 'object' || field.hasEffectIfEmpty === true) return false
  return Object.keys(value).length === 0
}

/** Drops the neutral values, because the server behind the engine may have other defaults. */
export const dropNeutralValues = (fields: Fields): Fields =>
  Object.fromEntries(
    Object.entries(fields).map(([name, { reader }]) => [name, { reader }] as const),
  )
