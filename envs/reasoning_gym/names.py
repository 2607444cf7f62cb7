"""The tasks of reasoning-gym 0.1.25 that are worlds here, and those that are not.

A table and nothing else, so that listing worlds imports no package. A test compares it with the installed one.
"""

from __future__ import annotations

# fmt: off
LEVELS: dict[str, int] = dict(  # noqa: C408 - a table of names reads better so
    ab=4, acre=0, advanced_geometry=4, aiw=9, arc_1d=4, arc_agi=4, base_conversion=5, basic_arithmetic=5, bf=3,
    binary_alternation=4, binary_matrix=4, bitwise_arithmetic=10, boxnet=9, caesar_cipher=2,
    calendar_arithmetic=4, chain_sum=11, circuit_logic=5, codeio=4, coin_flip=13, color_cube_rotation=5,
    complex_arithmetic=4, count_bits=5, count_primes=5, countdown=5, course_schedule=5, cryptarithm=4,
    decimal_arithmetic=4, decimal_chain_sum=5, dice=4, emoji_mystery=6, family_relationships=9, figlet_font=6,
    fraction_simplification=4, futoshiki=4, game_of_life=4, game_of_life_halting=4, gcd=4, graph_color=4,
    group_anagrams=4, gsm_symbolic=0, intermediate_integration=8, isomorphic_strings=4, jugs=4, kakurasu=4,
    knight_swap=0, knights_knaves=4, largest_island=4, lcm=4, leg_counting=36, letter_counting=8, letter_jumble=5,
    list_functions=0, mahjong_puzzle=4, manipulate_matrix=5, maze=4, mini_sudoku=5, modulo_grid=1, n_queens=5,
    needle_haystack=4, number_filtering=4, number_format=4, number_sequence=4, number_sorting=8,
    palindrome_generation=4, palindrome_partitioning=4, path_star=4, polynomial_equations=4,
    polynomial_multiplication=4, pool_matrix=4, power_function=5, prime_factorization=4, products=11,
    propositional_logic=5, puzzle24=7, quantum_lock=10, ransom_note=4, rearc=7, rectangle_count=5,
    rotate_matrix=5, rotten_oranges=4, rubiks_cube=4, rush_hour=4, self_reference=10, sentence_reordering=4,
    shortest_path=4, simple_equations=4, simple_geometry=4, simple_integration=4, sokoban=14, spell_backward=5,
    spiral_matrix=4, string_insertion=4, string_manipulation=5, string_splitting=4, string_synthesis=4, sudoku=5,
    survo=2, syllogism=4, time_intervals=7, tower_of_hanoi=4, tsumego=4, word_ladder=3, word_sequence_reversal=4,
    word_sorting=5, zebra_puzzles=6,
)
# fmt: on
"""Task -> how many levels its curriculum has, 0 where it has none. A level that the package's own curriculum sets
and its own configuration refuses is not counted (caesar_cipher, knight_swap, modulo_grid, rubiks_cube, survo)."""

EXCLUDED = {
    "composite": "a mixture of other tasks that needs a list of them: play those by their own names",
}
"""Task -> why it is no world."""

NO_ANSWER = frozenset({"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"})
"""Tasks that are graded by rules alone, without a stored answer: these worlds have no expert."""
