/** Traces of the machine that a file was written on: the repository speaks of the project alone. */

import type { SourceFile } from './source-file.ts'

// Spelled in parts, so that this file does not name what it looks for.
const folders = ['work', 'farm', 'home', 'root', 'Users'].join('|')
const machinePath = new RegExp(String.raw`(?<![\w.<>*})-])/(?:${folders})/[\w.-]+`)
const hosts = ['registry', 'artifactory', 'nexus', 'verdaccio', 'mirror', 'npmjs'].join('|')
const registryHost = new RegExp(String.raw`https?://[^\s/"'\x60]*(?:${hosts})`, 'i')
const npmSetting = /^(?:@[\w-]+:)?registry\s*=/
const lockAddress = /"resolved"\s*:/

/** Machine paths, registry hosts and download addresses, in any text file. */
export function machineTraces(files: readonly SourceFile[]): string[] {
  return files.flatMap(({ path, text }) =>
    text.split('\n').flatMap((line, at) => {
      const found = traceIn(line)
      return found === undefined ? [] : [`${path}:${at + 1}: ${found}`]
    }),
  )
}

function traceIn(line: string): string | undefined {
  if (machinePath.test(line)) return `a machine's path: ${machinePath.exec(line)?.[0]}`
  if (registryHost.test(line)) return 'a registry host'
  if (npmSetting.test(line)) return 'a registry setting'
  return lockAddress.test(line) ? 'a download address' : undefined
}
