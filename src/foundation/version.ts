/** The package's version, and which versions of Node it supports. */

/** Equal to `version` in package.json, which a test checks. */
export const version = '0.1.0'

/** Equal to `engines` in package.json, which a test checks. */
export const oldestNode = '22.19'

/** A sentence about a version of Node that is too old, or `null`. */
export function nodeProblem(found: string): string | null {
  const [major = 0, minor = 0] = found.split('.').map(Number)
  const [oldestMajor = 0, oldestMinor = 0] = oldestNode.split('.').map(Number)
  const isNewEnough = major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)
  if (isNewEnough) return null
  return (
    `tutti needs Node ${oldestNode} or newer, and this is Node ${found}: install one from ` +
    'https://nodejs.org, or for this project alone: npm install node@24, then npx node or npx tutti'
  )
}
