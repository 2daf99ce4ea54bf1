/**
 * Letters, each after a `=`, with the code points of the characters that look like it, as
 * differences in base 36. Written by `npm run look-alikes`; the sources are in
 * docs/decisions/0029-look-alikes.md.
 */
export const lookAlikeRows = `\
=a gg 1 9s 3j 3h0 1 1ff 3z vl ae 4 1rf nt5 1 jw om 21 h7q lgg jiv 661 w 3a =aa x0z =ae 6e rz =ao
x11 =ar 2rd3 =au x13 =av x15 2 =ay x19 =b ao 3 2 5q 1y 7t 3j 1 q n 16 31r 3a 1 b 1 1 1 7 87 20 1ah
7 3g 2x k qq8 jr u ru h5v v 2o 1b2o w 3a =bl uj =c 4i 6e 50 p 1u 6e 39 7 20 j 2f 2u 4mq 3l pp b 60
a8 3n 1si s nqt h1 2c 1 sn k h6b 2o 87 k 67 15ey m 10 m 10 m 10 m 10 m 1fv e 3lh s 4 3a 12c =d 6o x
3f 45 1h 1 25 1 gs 31q b 1 c 9j c 1ej 2w k g m2 q3r 1 iv 26 q0 1z 1oq6 3la w 1e 1w =dz ir =e d9 2y
h 1 1 1 1 1 1 1o 7v 3k 2 2q 10 2 q 1j 2wr 1to 1 c 3i 1 1 pm 5x 70 1vd 3 5a 1 nna 1 j0 ph 1 1 d 1 v
r h6y aj 15 o 41w 8 h27 jjo 65v w 3a =f b6 7r 8k br 374 3 1iv k 7v qio gj 24 t 2q my h8y u hs 3vh
10lt t 65h w 3a =g b1 2g 3f 1 1 1l he 38 2uy 1vg 2 a qqb ix y 1c o5 2i 1oq9 1 3mc w 3a =h 87 8u 1
1i i 1 5d 13 4m u 20 o d 2 4m 2t4 2a aq 4j0 e p nrs by s 6c 2p p6 b 7 h8d 15un 1m 1m 1m 1m 535 w 3a
=i 8h 8n 1 1 9b 4d 3d 4sa 36 1 q 15p 5 pu7 ae 1m 7 on lla 136f 3lq w 3a =j fr i m 11 p 9i 2t 7x 2zc
b 1 1o1 qtr 1b6 1sda w 3a =k bd 79 7w 3k 2p 4 3li 186 3d mh 2bh 17 nr6 h6 2 2 2m sz hnm 171n d 3m2
w 3a =l 8y 2c 1 3 12 38 1j 1 1 1 1d 6y 31 56 7p a i 1i 23 1 9j 2jk c 1 ei 18r 3d 2xo 1e 1q 3i nma h
gl 2 1k d q1 1 1 39 h5o 3j 8q 6b 3ul 1b h1g i kg8 1m 1m 1m 1m 1gs d 2 j 3lh w 3a =ll ch tr =lo um
=ls iy =lz iz =m bg 5w 1 97 1r 1t 42 4s 2i1 r1 6e 187 i 28 n m7 2d0 nra m3 3 2 mz 25 h7t 2p 3xr
174s w 3a =mb 2rfv =n bi 47 1p 1 1 77 12 q 3l 8w 4 4nm 2q n 2z8 nr9 j5 k pi h1v jj 5i 15ep 1m 1m 1m
1m 1hn 3li w 3a =o 6w 9o x 1 79 1p 7 4 3f 1h 3a 4c 2k 2u 3b 3 k 16 td e8 1r j5 d 6a cx 1wy 3x 1 1 1
1 3 1 3k rw 7n 7 5r 1se 11 42 g j nlz o go 2 38 os 1 1 4 1 u i q 19 h5j p ap v 4f 18 3w2 d 2 10lf
2kh 3lv w 3a 10g =oe 9f =oo 6qm q63 52 =p bp f0 3j 371 9 1 f 1oy h 20 c b 164 1tb nqm hs 2 2 4n qe
h5v 1b62 w b 2z =q gb 2d hn 20 3 4ru 345 o3m 2 2e 1t4h w 3a =qe 2rcw =r gd 18 1 1 1 1 1 1 1 1 c2 s
1u 2 3ck 1hu 1 c 24 1 m ps 28g c nry hk 14 10 pq 1 1 1 1 1 1 1 s 9 g x hmi l09 jj5 2k2 d 1 i 3ll w
3a =s 67 66 3m 1v cz 8a 2up 1vo m 7m qiu gf 2c 10 x 3 a 2 r0 5 h64 c2 41l h2x kg9 1m 1m 1m 1m 1gz b
3ll w 3a 12c =t 9z 1w 2 3t 29 1 v 1 7w 3i 2z 2cz m7 1qd 1 46 2i mx dy 59 vs wd 1t nql gl 2m rv h7p
q 2s 49z h1q m4f 4 t 3ll w 3a 12n =tf x2v =ts iu =u i1 2 8q c8 2gz gc b 1 f 1px 1 1 2o r wh 49 ppt
iz q 6 pb 1 3 22 hne 3xe h2i ppe w 3a =ue 5t7 =uo xur =v c2 62 7j y 2m 2i 28 7n 2tz 2 9 1 2 1r7 7
d2 mj 49 1ww 3 5f 1 nn1 1 dk h 3k ui gz2 6u gb 1x 3jd ca h1k 1h jio x1 1m 1m 1m 1m 53f w 3a zx =vb
2rfw =w hb u 8s 48 s 4g 1w 4ow p4 jw 1ry 1q nqx 9v 7o 2e c qo x krl g5 4 1 174n w 3a =x 5z kw 3i 32
39q 1o 6o 22 1cm 1k6 qg 1 77 1 hp 4w nm6 19k 2 1 1 1 1 h19 6y 10 2r eo 1ao0 w 3a =y 4l 7j 4b k 17 1
7q e v 35 30 2 2eu 2hx ab 2p6 nr7 19q v k h7p 4c2 1k h2f kft 1m 1m 1m 1m 1gi 3mq w 3a =z c6 33 r 28
1 85 50s 2c o 2xq nsg hz ts lkh 5 16sg w 3a`
