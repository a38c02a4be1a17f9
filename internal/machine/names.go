// SPDX-License-Identifier: Apache-2.0

package machine

import "strings"

// MaxName is the maximum length of a name in Key. Names of CPUID have 48 bytes.
const MaxName = 256

// marks replaces the marks between words: "Core(TM)2 Duo" is "core 2 duo".
var marks = strings.NewReplacer("(r)", " ", "(tm)", " ", "(c)", " ", "-", " ", "_", " ", ",", " ", "?", " ")

// noise are words that only some of the names of a CPU contain.
var noise = map[string]bool{
	"intel": true, "amd": true, "cpu": true, "processor": true, "apu": true, "extreme": true, "edition": true, "series": true, "gen": true, "the": true,
}

// counts are the words before "core": "8-Core Processor", "64-Cores", "Quad-Core AMD Opteron".
var counts = map[string]bool{"single": true, "dual": true, "triple": true, "quad": true, "six": true, "eight": true, "twelve": true, "sixteen": true}

// Key returns a key that is the same for different spellings of a CPU's name: "Intel(R) Xeon(R)
// Platinum 8259CL CPU @ 2.50GHz" and "Intel Xeon Platinum 8259CL" are both "xeon platinum 8259cl".
// It returns "" for a text that does not contain the name of a CPU.
func Key(name string) string {
	if len(name) > MaxName {
		return ""
	}
	name, _, _ = strings.Cut(strings.ToLower(strings.ToValidUTF8(name, " ")), "@")
	for _, graphics := range [...]string{" with radeon", " w/ radeon"} {
		name, _, _ = strings.Cut(name, graphics)
	}
	words := strings.FieldsFunc(marks.Replace(name), func(r rune) bool { return r <= ' ' || r > '~' })
	kept := words[:0]
	for i, w := range words {
		switch {
		case noise[w] || ordinal(w) || w == "0" && len(kept) > 0: // "Xeon(R) CPU E5-2670 0"
		case (w == "core" || w == "cores") && i > 0 && (counts[words[i-1]] || isNumber(words[i-1])):
			if n := len(kept); n > 0 && kept[n-1] == words[i-1] {
				kept = kept[:n-1]
			}
		case w == "x" && i+1 < len(words) && words[i+1] == "series": // "Core i9-10940X X-series"
		case (w == "gold" || w == "silver") && i > 0 && (words[i-1] == "pentium" || words[i-1] == "celeron"):
		default:
			kept = append(kept, w)
		}
	}
	return strings.Join(kept, " ")
}

// ordinal reports whether the word is a generation: "11th".
func ordinal(w string) bool {
	for _, ending := range [...]string{"st", "nd", "rd", "th"} {
		if digits, ok := strings.CutSuffix(w, ending); ok {
			return isNumber(digits)
		}
	}
	return false
}

func isNumber(w string) bool { return w != "" && strings.Trim(w, "0123456789") == "" }
