"""completion.py REEF SOURCE - what shells complete is what --help lists, and
what the manual explains."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile

from checks import Skipped, run_checks
from pool_processes import prepare_child, until_said

REEF, SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
# Completes a line as bash does, and prints the words; a line starting with
# "default" tells that bash would go on with names of files.
BASH = r"""
. "$1"
complete -p reef
compopt() { echo "compopt $*"; }
while IFS= read -r line; do
	read -ra COMP_WORDS <<<"${line//=/ = }"
	[[ $line == *[\ =] ]] && COMP_WORDS+=("")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	_reef
	echo "${COMPREPLY[*]}"
	echo "--end"
done
"""


def reef(*arguments):
    return subprocess.run([REEF, *arguments], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def commands():
    return re.findall(r"^  (\w+) ", reef("help"), re.M)


def flags_of(*command):
    return set(re.findall(r"^  (--[\w-]+)", reef(*command, "--help"), re.M))


class Shells:
    """The completion of each shell, in a folder."""

    def __enter__(self):
        self.home = tempfile.mkdtemp(prefix="reef-completion-")
        self.paths = {}
        for shell, name in ("bash", "reef"), ("zsh", "_reef"), (
                "fish", "reef.fish"):
            self.paths[shell] = os.path.join(self.home, name)
            with open(self.paths[shell], "w", encoding="utf-8") as stream:
                stream.write(reef("completion", shell))
        self.files = os.listdir(self.home)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.home)

    def bash(self, *lines):
        """What bash completes each line to: lists of words."""
        done = subprocess.run(
            ["bash", "--norc", "-c", BASH, "bash", self.paths["bash"]],
            input="\n".join(lines) + "\n", check=True, text=True,
            capture_output=True)
        assert not done.stderr, done.stderr
        registered, *answers = done.stdout.split("\n", 1)
        assert registered == "complete -o default -F _reef reef", registered
        return [one.split() for one in answers[0].split("--end\n")[:-1]]

    def fish(self, *lines):
        if not shutil.which("fish"):
            raise Skipped("there is no fish")
        script = "source %s\n" % self.paths["fish"] + "".join(
            "complete -C '%s'\necho -- --end\n" % line for line in lines)
        done = subprocess.run(
            ["fish", "--no-config", "-c", script], check=True, text=True,
            cwd=self.home, capture_output=True,
            env=dict(os.environ, HOME=self.home))
        assert not done.stderr, done.stderr
        return [[word.split("\t")[0] for word in one.splitlines()]
                for one in done.stdout.split("--end\n")[:-1]]


def check_bash_completes_all_that_help_lists(shells):
    names = [name for name in commands() if name != "help"]
    assert len(names) >= 18, names
    first, *others = shells.bash("reef ", *(
        "reef %s --" % name for name in names))
    assert first == commands(), first
    for name, offered in zip(names, others):
        expected = flags_of(name)
        if name == "node":
            expected |= flags_of("node", "list")
        assert set(offered) == expected, (name, expected ^ set(offered))
        assert "--help" in offered, name


def check_bash_knows_words_and_values(shells):
    verbs = re.findall(r"^  (\w+) ", reef("space", "--help"), re.M)
    assert "token" in verbs, verbs
    lines = {
        "reef sta": ["status"],
        "reef space ": ["compopt", "+o", "default", *verbs],
        "reef space to": ["compopt", "+o", "default", "token"],
        "reef space --tls no to": ["compopt", "+o", "default", "token"],
        "reef space --tls=no to": ["compopt", "+o", "default", "token"],
        "reef space token ": [],
        "reef node un": ["compopt", "+o", "default", "undrain"],
        "reef bench f": ["compopt", "+o", "default", "fabric"],
        "reef bench fabric --case ": ["compopt", "+o", "default"],
        "reef up --tls ": ["auto", "yes", "no"],
        "reef up --tls=": ["auto", "yes", "no"],
        "reef up --tls=y": ["yes"],
        "reef up --log d": ["debug"],
        "reef node --keep ": ["holder", "image", "none"],
        "reef status --fabrics=t": ["tcp"],
        "reef up --lend ": ["compopt", "+o", "default"],
        "reef up --data ": [],
        "reef map create s m --evict l": ["lru", "lfu"],
        "reef lock --kind ": ["shift", "spin", "mcs", "rw"],
        "reef lock l -- --": [],
        "reef completion ": ["compopt", "+o", "default", "bash", "zsh", "fish"],
        "reef nonsense --": [],
    }
    for (line, expected), found in zip(
            lines.items(), shells.bash(*lines)):
        assert found == expected, (line, expected, found)


def check_fish_completes_all_that_help_lists(shells):
    names = [name for name in commands() if name != "help"]
    first, *others = shells.fish("reef ", *(
        "reef %s --" % name for name in names))
    assert sorted(first) == sorted(commands()), first
    for name, offered in zip(names, others):
        expected = flags_of(name)
        if name == "node":
            expected |= flags_of("node", "list")
        # Of a flag that takes a value fish may offer both of its forms.
        offered = {word.rstrip("=") for word in offered}
        assert offered == expected, (name, expected ^ offered)
    lines = {
        "reef space to": ["token"],
        "reef up --tls ": ["auto", "no", "yes"],
        "reef space create node --no": [],
        "reef up --data ": sorted(shells.files),
    }
    for (line, expected), found in zip(lines.items(), shells.fish(*lines)):
        assert sorted(word.rstrip("/") for word in found) == sorted(
            expected), (line, expected, found)


def check_zsh_completes_in_a_terminal(shells):
    zsh = shutil.which("zsh")
    if not zsh:
        raise Skipped("there is no zsh")
    subprocess.run([zsh, "-n", shells.paths["zsh"]], check=True)
    ours, theirs = pty.openpty()
    said = [b""]
    child = subprocess.Popen(
        [zsh, "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs,
        cwd=shells.home, preexec_fn=prepare_child, start_new_session=True,
        env=dict(os.environ, HOME=shells.home, TERM="dumb", LC_ALL="C"))
    os.close(theirs)

    def told(text):
        while select.select([ours], [], [], 0)[0]:
            said[0] += os.read(ours, 65536)
        return text in said[0]

    def answers(keys, text):
        said[0] = b""
        os.write(ours, keys)
        until_said(lambda: "%r after %r: %r" % (text, keys, said[0]),
                   lambda: told(text))
        os.write(ours, b"\x15")

    try:
        answers(b"fpath=(%s $fpath); autoload -U compinit; compinit -u -D; "
                b"LISTMAX=9999; echo re''ady\n" % shells.home.encode(),
                b"ready")
        answers(b"reef sta\t", b"status ")
        answers(b"reef space tok\t", b"token ")
        answers(b"reef up --no-r\t", b"--no-redis ")
        answers(b"reef up --tls=y\t", b"yes ")
        answers(b"reef node --node-k\t_re\t", b"_reef ")
        # A list with what each is for.
        answers(b"reef space \t", b"make all tokens of the space void")
        answers(b"reef status --\t", b"again every second")
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def sections():
    """The manual's text of each command."""
    with open(SOURCE + "/man/reef.1", encoding="utf-8") as stream:
        text = stream.read()
    text = text[text.index("The commands:"):text.index(".Sh ENVIRONMENT")]
    found = {}
    known, name = commands(), None
    depth = 0
    for line in text.splitlines():
        depth += line.startswith(".Bl") - line.startswith(".El")
        match = re.match(r"\.It Cm (\w+)", line)
        if match and depth == 1:
            name = match.group(1)
            assert name in known, line
        if name:
            found[name] = found.get(name, "") + line + "\n"
    return found


def check_the_manual_has_no_option_that_help_has_not(shells):
    """The test `install` checks the other direction."""
    texts = sections()
    assert set(texts) == set(commands()), set(texts) ^ set(commands())
    for name, text in texts.items():
        if name == "help":
            continue
        for flag in re.findall(r"^\.It Fl (-[\w-]+)", text, re.M):
            assert "-" + flag in flags_of(name), (name, flag)
        words, = shells.bash("reef %s " % name)
        for word in words[3:]:
            assert re.search(r"\b%s\b" % word, text), (name, word)


def check_the_synopsis_has_every_command_and_verb(shells):
    with open(SOURCE + "/man/reef.1", encoding="utf-8") as stream:
        text = stream.read().split(".Sh SYNOPSIS\n")[1].split("\n.Sh ")[0]
    found = {}
    for part in text.split(".Nm\n")[1:]:
        name, *words = re.findall(r"[\w-]+", " ".join(
            re.findall(r"^\.Cm (.*)", part, re.M)))
        found.setdefault(name, set()).update(words)
    assert set(found) == set(commands()), set(found) ^ set(commands())
    for name, words in found.items():
        told, = shells.bash("reef %s " % name)
        assert words == set(told[3:]), (name, words ^ set(told[3:]))


def check_a_shell_that_it_does_not_know(_):
    done = subprocess.run([REEF, "completion", "csh"], check=False, text=True,
                          capture_output=True)
    assert done.returncode == 2 and "bash, zsh and fish" in done.stderr, done
    done = subprocess.run([REEF, "completion"], check=False, text=True,
                          capture_output=True)
    assert done.returncode == 2 and not done.stdout, done


if __name__ == "__main__":
    sys.exit(run_checks(globals(), Shells, sys.argv[3:]))
