/** A chat template with its traits, as the model's process creates it. */

import {
  type ChatTemplate,
  createChatTemplate,
} from '../../../../../src/inference/engines/llama/templates/chat-template.ts'

export const templateOf = (source: string, controls: readonly string[] = []): ChatTemplate =>
  createChatTemplate({ source, bos: '<s>', eos: '</s>', controls })
