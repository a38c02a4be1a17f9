#!/usr/bin/env bash
# Writes the man pages and the shell completions of energy, from its usage and flags.
#
#   manual.sh ENERGY DIRECTORY     below DIRECTORY as below /usr/share
set -euo pipefail
energy=$1 out=$2
version=$("$energy" version | cut -d' ' -f2)
date=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%d)
bash=$out/bash-completion/completions/energy zsh=$out/zsh/site-functions/_energy fish=$out/fish/vendor_completions.d/energy.fish
mkdir -p "$out/man/man1" "${bash%/*}" "${zsh%/*}" "${fish%/*}"

commands=$("$energy" help | awk '/^  / {name = $1; $1 = ""; print name "\t" substr($0, 2)}')

# A page from the usage on standard input.
page() { # NAME DESCRIPTION
	awk -v name="$1" -v does="$2" -v date="$date" -v version="$version" '
	function text(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); sub(/^[.'\'']/, "\\\\\\&&", s); return s }
	function verbatim(on) { if (on != literal) print (on ? ".PP\n.nf" : ".fi"); literal = on }
	BEGIN {
		printf ".TH %s 1 %s \"energy %s\" \"User Commands\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.nf\n", toupper(name), date, version, text(name), text(does)
		part = "synopsis"
	}
	part == "synopsis" && $0 == "" { print ".fi\n.SH DESCRIPTION"; part = "description"; next }
	part == "synopsis" { sub(/^(Usage: |       )/, ""); print text($0); next }
	/^Flags:$/ { verbatim(0); part = "flags"; next }
	part == "description" && $0 == "" { verbatim(0); print ".PP"; next }
	part == "description" { verbatim(/^  /); print text($0); next }
	/^  -/ { if (!flags++) print ".SH OPTIONS"; split($0, f, "\t"); sub(/^  /, "", f[1]); print ".TP\n.B " text(f[1]); if (f[2]) print text(f[2]); next }
	{ sub(/^[ \t]+/, ""); print text($0) }
	END { verbatim(0) }' | gzip -9n >"$out/man/man1/$1.1.gz"
}

# The flags of a command: name, description and argument, if any, separated by tabs.
flags() {
	"$energy" "$1" -h 2>&1 | awk '
	/^Flags:$/ { on = 1; next }
	on && /^  -/ { split($0, f, "\t"); split(f[1], w, " "); name = w[1]; argument = w[2]; if (f[2]) print name "\t" f[2] "\t" argument; next }
	on { sub(/^[ \t]+/, ""); print name "\t" $0 "\t" argument }'
}

"$energy" help | page energy "measure the energy of programs and of this machine"
{
	printf '_energy() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} words\n\tcase $COMP_CWORD:${COMP_WORDS[1]} in\n'
	printf '\t1:*) words="%s" ;;\n' "$(cut -f1 <<<"$commands" | xargs)"
} >"$bash"
printf '#compdef energy\nlocal -a commands=(\n' >"$zsh"
sed "s/'/'\\\\''/g; s/\t/:/; s/.*/\t'&'/" <<<"$commands" >>"$zsh"
printf ')\nif ((CURRENT == 2)); then\n\t_describe command commands\n\treturn\nfi\nlocal command=$words[2]\nshift words\n((CURRENT--))\ncase $command in\n' >>"$zsh"
: >"$fish"
while IFS=$'\t' read -r name does; do
	"$energy" "$name" -h 2>&1 | page "energy-$name" "$does"
	list=$(flags "$name")
	printf '\t*:%s) words="%s" ;;\n' "$name" "$(cut -f1 <<<"$list" | xargs)" >>"$bash"
	printf '%s)\n\t_arguments' "$name" >>"$zsh"
	printf "complete -c energy -f -n __fish_use_subcommand -a %s -d '%s'\n" "$name" "${does//\'/\\\'}" >>"$fish"
	while IFS=$'\t' read -r flag description argument; do
		test -n "$flag" || continue
		safe=${description//\'/} && safe=${safe//[\[\]]/}
		printf " \\\\\n\t\t'%s[%s]%s'" "$flag" "${safe//:/\\:}" "${argument:+:$argument:_files}" >>"$zsh"
		printf "complete -c energy -n '__fish_seen_subcommand_from %s' -o %s -d '%s'%s\n" "$name" "${flag#-}" "$safe" "${argument:+ -r}" >>"$fish"
	done <<<"$list"
	printf " \\\\\n\t\t'*:: :_normal' ;;\n" >>"$zsh"
done <<<"$commands"
printf '\t*) return ;;\n\tesac\n\tCOMPREPLY=($(compgen -W "$words" -- "$cur"))\n}\ncomplete -o default -F _energy energy\n' >>"$bash"
printf 'esac\n' >>"$zsh"
