// The types of the package @types/proper-lockfile, but for `fs`.

declare function lock(file: string, options?: lock.LockOptions): Promise<() => Promise<void>>;

declare namespace lock {
  interface OperationOptions {
    retries?: number;
    factor?: number;
    minTimeout?: number;
    maxTimeout?: number;
    randomize?: boolean;
    forever?: boolean;
    maxRetryTime?: number;
  }

  interface UnlockOptions {
    /** Resolves symbolic links; the file has to exist. Default: true. */
    realpath?: boolean;
    /** The folder. Default: the file's name with `.lock`. */
    lockfilePath?: string;
  }

  interface CheckOptions extends UnlockOptions {
    /** The age in milliseconds at which a folder no longer counts, at least 2000. Default: 10000. */
    stale?: number;
  }

  interface LockOptions extends CheckOptions {
    /** How often the folder is refreshed, in milliseconds. Default: stale / 2. */
    update?: number;
    /** How long to wait: the sum of the pauses between so many attempts. Default: 0. */
    retries?: number | OperationOptions;
    /** Called when the folder is gone or another's. Default: throws, which ends the program. */
    onCompromised?: (error: Error & { code: 'ECOMPROMISED' }) => void;
  }

  function lock(file: string, options?: LockOptions): Promise<() => Promise<void>>;
  function unlock(file: string, options?: UnlockOptions): Promise<void>;
  function check(file: string, options?: CheckOptions): Promise<boolean>;
  function lockSync(file: string, options?: LockOptions): () => void;
  function unlockSync(file: string, options?: UnlockOptions): void;
  function checkSync(file: string, options?: CheckOptions): boolean;
}

export = lock;
