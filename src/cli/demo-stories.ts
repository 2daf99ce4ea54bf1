/** The demo's AI tasks: a small model, run in the process's neighbourhood, writes stories. */

import { writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { makeFolders } from '../checkpoint/files.ts'
import { AITask } from '../index.ts'
import { InferenceBackend } from '../inference/index.ts'
import type { Output } from './output.ts'

const heroes = ['a cat', 'a small robot', 'Lily', 'an old bear', 'Tom', 'a bird', 'Mia', 'a frog']
const places = ['in the garden', 'by the sea', 'at the park', 'in a big house', 'on a hill']
/** One story for so many simulations, so that both last about as long. */
const simulationsPerStory = 8

/** Leaves its configuration beside the journal: a start for one's own. */
export async function openStoryteller(
  { folder, model = '' }: { readonly folder: string; readonly model?: string },
  output: Output,
): Promise<InferenceBackend> {
  makeFolders(resolve(folder))
  const configFile = join(folder, 'demo-model.yaml')
  const modelName = resolve(model)
  await writeFile(configFile, configuration(modelName))
  return InferenceBackend.create({
    name: 'storyteller',
    configFile,
    modelName,
    useService: false,
    onProgress: (text) => output.progress([text]),
  })
}

/** One core is left to the simulations: an engine with more threads than free cores crawls. */
const configuration = (model: string): string => `required:
  model_name: ${JSON.stringify(model)}
llm:
  max_model_len: 256
  max_tokens: 60
  temperature: 0.7
engine:
  kind: llama
  threads: 1
  gpu: false
`

export function askForStories(simulations: number): AITask[] {
  return Array.from({ length: Math.ceil(simulations / simulationsPerStory) }, (_, at) => {
    const hero = heroes[at % heroes.length]
    const place = places[at % places.length]
    const prompt = `Once upon a time, there was ${hero} who lived ${place}.`
    return new AITask({ prompt, backend: 'storyteller', seed: at })
  })
}

/** Up to the end of its second sentence. */
export function tellStory({ prompt, response = '' }: AITask): string {
  const [first = response] = /^.*?[.!?](?=\s|$)/s.exec(response) ?? []
  return `${prompt} ${first}`.replaceAll(/\s+/g, ' ').trim()
}
