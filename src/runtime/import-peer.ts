/** Imports of optional packages, which the application installs if it needs them. */

/**
 * The module of an optional peer dependency. Its name is not written at the import: bundlers
 * resolve such names, and fail where the package is not installed.
 */
export async function importPeer<Module>(name: string): Promise<Module> {
  return (await import(/* @vite-ignore */ /* webpackIgnore: true */ name)) as Module
}
