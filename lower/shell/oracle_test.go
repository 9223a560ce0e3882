//go:build integration

package shell

import (
	"context"
	"os/exec"
	"testing"
)

// oracleRows are scripts whose output is known from the text alone; bash must
// print the same.
var oracleRows = []string{
	`echo a b   c`, `echo "a b"  'c d'`, `echo a\ b`, `echo $'a\tb\x41\u00e9\101'`, `echo "a\$b\"c\\d"`,
	`x=1; echo $x ${x} "$x" '$x'`, `x="a b"; printf '<%s>' $x`, `x="a b"; printf '<%s>' "$x"`, `x=" a  b "; printf '<%s>' $x`,
	`IFS=,; x=a,b,,c; printf '<%s>' $x`, `IFS=:; x=:a:; printf '<%s>' $x`, `IFS=; x="a b"; printf '<%s>' $x`, `IFS=' ,'; x='a , b'; printf '<%s>' $x`,
	`x=abcdef; echo ${x:1:2} ${x:2} ${x: -2} ${x:0:-1} ${#x}`, `x=abcabc; echo ${x#*b} ${x##*b} ${x%b*} ${x%%b*}`,
	`x=abcabc; echo ${x/b/X} ${x//b/X} ${x/#a/X} ${x/%c/X} ${x/b}`, `x=aBc; echo ${x^} ${x^^} ${x,} ${x,,}`,
	`echo ${u:-d} ${u-e} ${u:+f}`, `u=; echo ${u:-d} ${u-e} ${u+f}`, `echo ${u:=z} $u`, `v=x; x=1; echo ${!v}`,
	`a=(1 2 3); echo ${a[0]} ${a[@]} ${#a[@]} ${a[@]:1:2} ${!a[@]} ${a[-1]}`, `a=(x "y z"); printf '<%s>' "${a[@]}"`, `a=(x "y z"); printf '<%s>' "${a[*]}"`,
	`a+=(1); a+=(2); echo ${a[@]}`, `declare -A m=([k]=v [j]=w); echo ${m[k]}${m[j]}`, `a[3]=x; echo ${a[3]}`, `set -- a "b c"; printf '<%s>' "$@"; printf '<%s>' "$*"; echo $#`,
	`set -- a b c; shift; echo $1 $2 ${@:1:1}`, `echo {a,b}{1,2}`, `echo {1..4} {4..1} {a..d} {01..03} {1..9..4}`, `echo a{,b}c`, `echo {a} {a,b`, `echo "{a,b}"`,
	`echo $((1+2*3)) $((2**5)) $((7/2)) $((7%3)) $((1<2)) $((1?5:6)) $((0x10)) $((010)) $((2#101))`, `i=3; echo $((i++)) $i $((++i)) $((i+=2))`,
	`x=5; (( x > 3 )) ; echo $(( x == 5 && 1 ))`, `echo ~ ~/x "~" a~b`, `x=~/y; echo $x`, `echo $(echo a; echo b)`, `echo "$(echo a; echo b)"`, "echo `echo x`",
	`x=$(printf 'a\n\n'); echo "$x."`, `cat <<E
a $((1+1)) $(echo b) \$c
E`, `cat <<'E'
$x \y
E`, `cat <<< "a b"`, `x=a; x+=b; echo $x`, `f() { echo "<$1>"; }; f "a b"`, `f() { echo $#; }; f a b c`, `for i in a "b c"; do printf '<%s>' "$i"; done`,
	`for ((i=0;i<3;i++)); do printf $i; done`, `printf '%s-%s\n' a b c d`, `printf '%d %x %03d\n' 10 255 7`, `printf '%b' 'a\tb'`, `printf '%c' abc`, `printf '%%'`, `printf '%5s|%.2s' a abc`,
	`echo -n a; echo b`, `echo -e 'a\tb'`, `read a b <<< "1 2 3"; echo $b`, `IFS=, read -r a b <<< "1,2"; echo $b$a`, `printf -v x '%s!' hi; echo $x`, `mapfile -t l <<< $'a\nb'; echo ${l[1]}`,
	`eval 'x=1'; echo $x`, `x='echo hi'; $x`, `x='a*b'; echo "$x"`, `echo a | cat`, `echo hello | rev`, `echo YWJj | base64 -d`, `echo abc | tr a-c x-z`, `echo 616263 | xxd -r -p`,
	`declare -n r=t; t=5; echo $r`, `declare -u v=abc; echo $v`, `declare -i n=2+3; echo $n`, `x=abc; y=${x%c}d; echo $y`, `echo "${x:-a b}"`, `printf '<%s>' ${x:-a b}`,
	`case abc in a*) echo 1;; *) echo 2;; esac >/dev/null; echo z`, `echo $'\e' | cat -v >/dev/null; echo ok`, `x=a/b/c; echo ${x##*/} ${x%/*} ${x//\//-}`, `x='a b'; y=$x; echo "$y"`,
	`set -- x; echo "${1}y" ${2:-none}`, `echo "a"'b'c`, `a=1 b=2; echo $a$b`, `echo ${x:+y}.`, `echo $'\'q\''`, `echo "` + "`echo n`" + `"`, `basename /a/b.c .c; dirname /a/b`,
	`echo abc | sed 's/b/X/'`, `printf 'a\nb\n' | head -n 1`, `printf 'a\nb\n' | tail -n 1`, `printf 'a\nb\n' | tac`, `echo "$(cat <<< x)"`, `x=$'a\nb'; printf '<%s>' $x`,
}

func TestExpansionsAreThoseOfBash(t *testing.T) {
	for _, src := range oracleRows {
		cmd := exec.Command("bash", "--norc", "-c", src)
		cmd.Dir = t.TempDir()
		cmd.Env = []string{"HOME=/home/dev", "PATH=/usr/bin:/bin", "USER=dev", "LANG=C.UTF-8"}
		want, err := cmd.Output()
		if err != nil && len(want) == 0 {
			t.Errorf("%q: bash: %v", src, err)
			continue
		}
		var out sink
		w := &walker{ctx: context.Background(), env: testEnv(), arg0: lit("bash"), budget: 10_000, inherit: stdio{out: &out}}
		w.script(src, 0)
		if out.v.s != string(want) {
			t.Errorf("%q:\n bash %q\n here %q", src, want, out.v.s)
		}
	}
}
