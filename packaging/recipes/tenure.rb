# Homebrew on Linux. On macOS nothing of tenure has been run yet, so the formula does not offer it there.
class Tenure < Formula
  desc "One holder at a time, for scripts, CI jobs and AI agents"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on :linux

  on_intel do
    url "@FILES@/tenure-@VERSION@-x86_64-unknown-linux-musl.tar.gz"
    sha256 "@SHA256_X86_64@"
  end
  on_arm do
    url "@FILES@/tenure-@VERSION@-aarch64-unknown-linux-musl.tar.gz"
    sha256 "@SHA256_AARCH64@"
  end

  def install
    bin.install "tenure"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/tenure.bash" => "tenure"
    zsh_completion.install "completions/_tenure"
    fish_completion.install "completions/tenure.fish"
    pkgshare.install "licences"
  end

  test do
    ENV["TENURE_DIR"] = testpath/"locks"
    assert_equal "free\n", shell_output("#{bin}/tenure run deploy -- echo free")
    refute_predicate shell_output("#{bin}/tenure --version"), :empty?
  end
end
