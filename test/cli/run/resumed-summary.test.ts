import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { tuttiHere, workFolder } from './work-folder.ts'

it('resume: where no task ran there are no durations', async () => {
  const folder = workFolder()
  writeFileSync(join(folder, 't.jsonl'), '{"executable":"true","uid":"only"}')
  const ran = await tuttiHere(folder, '--json', 'run', 't.jsonl')
  const { duration } = JSON.parse(ran.stdout) as { duration: { max: number } }
  expect(duration.max).toBeGreaterThan(0)
  const again = await tuttiHere(folder, '--json', 'resume')
  expect(again.code).toBe(0)
  expect(JSON.parse(again.stdout)).toMatchObject({ duration: null })
})
