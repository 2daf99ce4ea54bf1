/** Simulate, analyse, ask the model, and let its answer decide the next step. */

import { fileURLToPath } from 'node:url'
import { ConcurrentBackend } from 'tutti'
import { InferenceBackend } from 'tutti/inference'
import { WorkflowEngine } from 'tutti/workflow'
import { heat } from './tasks/soup.ts'

const local = await ConcurrentBackend.create({ name: 'local', workers: 2 })
const model = await InferenceBackend.create({
  name: 'storyteller',
  configFile: fileURLToPath(new URL('stories.yaml', import.meta.url)),
  modelName: fileURLToPath(new URL('../.models/stories15M.gguf', import.meta.url)),
  useService: false,
})
await using flow = await WorkflowEngine.create({ backend: [local, model] })

const simulate = flow.functionTask(heat)
const analyse = flow.functionTask((degrees: number) => {
  if (degrees > 62) return 'too hot'
  return degrees < 58 ? 'too cold' : 'just right'
})
const ask = flow.promptTask((verdict: string) => {
  return `The soup was ${verdict}. Mom said, "Let us make it`
})

/** Every turn is the model's. The block is one task, with all of these inside. */
const cook = flow.block(async function cook(min: number, max: number): Promise<string> {
  for (let turn = 1; ; turn++) {
    const minutes = (min + max) / 2
    const verdict = analyse(simulate(minutes))
    const answer = await ask(verdict)
    console.log(`${turn}: ${minutes} minutes, ${await verdict}: "Let us make it${answer}…"`)
    if (/cool/.test(answer)) max = minutes
    else if (/warm/.test(answer)) min = minutes
    else return `${minutes} minutes`
  }
})
console.log(`the soup takes ${await flow.scope('kitchen', () => cook(0, 40))}`)

// Output:
// 1: 20 minutes, too hot: "Let us make it cooler…"
// 2: 10 minutes, too hot: "Let us make it cooler…"
// 3: 5 minutes, too cold: "Let us make it warm…"
// 4: 7.5 minutes, too hot: "Let us make it cooler…"
// 5: 6.25 minutes, just right: "Let us make it together…"
// the soup takes 6.25 minutes
