/** Which versions of Node the package supports. */

/** Equal to `engines` in package.json, which a test checks. */
export const oldestNode = '22.19'

/** A sentence about a version of Node that is too old, or `null`. */
export function nodeProblem(version: string): string | null {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const [oldestMajor = 0, oldestMinor = 0] = oldestNode.split('.').map(Number)
  const isNewEnough = major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)
  if (isNewEnough) return null
  return (
    `tutti needs Node ${oldestNode} or newer, and this is Node ${version}: install one from ` +
    'https://nodejs.org, or for this project alone: npm install node@24, then npx node or npx tutti'
  )
}
