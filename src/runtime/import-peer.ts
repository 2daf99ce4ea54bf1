/** Imports optional packages, which the application installs if it needs them. */

/**
 * Imports a package. The import expression does not contain the name, because bundlers resolve
 * literal names and fail if the package is not installed.
 */
export async function importPeer<Module>(name: string): Promise<Module> {
  return (await import(/* @vite-ignore */ /* webpackIgnore: true */ name)) as Module
}
